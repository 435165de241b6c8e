"""The kinds of the entries of indexes, for tests."""

from __future__ import annotations

from optdb.codegen.operation import ArraySpec


def kinds_of(index):
    """Return the kinds of an index's entries, for operations."""
    return [entry if entry is None else slice if isinstance(entry, slice) else ArraySpec.of(entry) for entry in index]

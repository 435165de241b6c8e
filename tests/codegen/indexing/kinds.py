"""Converts indexes of tests to the form that operations take."""

from __future__ import annotations

from optdb.codegen.operation import ArraySpec


def kinds_of(index):
    """Return the kinds of an index's entries, in the form that operations take."""
    return [entry if entry is None else slice if isinstance(entry, slice) else ArraySpec.of(entry) for entry in index]

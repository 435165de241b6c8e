"""Finds out who changes an op that others use, too.

Only where ``__debug__`` is true: under ``python -O`` nothing is watched and
nothing is paid.
"""

from __future__ import annotations

from typing import Any

from optdb.cache.construct import store
from optdb.cache.frozen import Freezer
from optdb.host.definition import declared

_frozen = Freezer(changing=True)
_MISSING = object()


class SharedOpChanged(TypeError):
    """A prop of an op was changed that is shared by all who made one like it."""


def set_attribute(op: Any, name: str, value: Any) -> None:
    """Set an attribute of `op`, unless it is a prop of a shared op.

    Raises
    ------
    SharedOpChanged
        If the value is another than the one by which the op is shared.
    """
    if store.entry(op) is not None and name in (declared(type(op)) or ()):
        before = getattr(op, name, _MISSING)
        if before is not value and _frozen(before) != _frozen(value):
            raise SharedOpChanged(_complaint(op, name, before, value))
    object.__setattr__(op, name, value)


def _complaint(op: Any, name: str, before: Any, value: Any) -> str:
    cls = type(op)
    return (
        f"{cls.__module__}.{cls.__qualname__}: prop {name!r} of a shared op was to be changed from {before!r} to "
        f"{value!r}. Every graph that uses {cls.__name__} with {name}={before!r} would change with it.\n"
        f"HINT: make another op instead, {cls.__name__}(..., {name}={value!r})."
    )

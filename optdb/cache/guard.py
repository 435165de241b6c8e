"""Finds out who changes an op that others may use, too.

Theano allows it, and some ops count in a prop how often they ran. So the change
is made, the op is shared no longer with those who ask for one like it was, and a
warning says which class and prop it was; a filter makes it an error. Where the op
was also given in place of a copy, the change is refused: the original is not to
change with its copy.

Only where ``__debug__`` is true: under ``python -O`` nothing is watched and
nothing is paid.
"""

from __future__ import annotations

import warnings
from typing import Any

from optdb.cache.construct import store
from optdb.cache.frozen import Freezer
from optdb.host.definition import declared

_frozen = Freezer(changing=True)
_MISSING = object()


class SharedOpChanged(RuntimeWarning):
    """A prop of an op was changed that is shared by all who made one like it."""


def set_attribute(op: Any, name: str, value: Any) -> None:
    """Set an attribute of `op`; a shared op whose prop changes is shared no longer.

    Warns
    -----
    SharedOpChanged
        If the value is another than the one by which the op is shared.

    Raises
    ------
    SharedOpChanged
        If the op also stands for copies of it: who changes a copy does not mean the original.
    """
    entry = store.entry(op)
    if entry is not None and name in (declared(type(op)) or ()):
        before = getattr(op, name, _MISSING)
        if before is not value and _frozen(before) != _frozen(value):
            if entry.stands_for_copies:
                raise SharedOpChanged(_refusal(op, name, before, value))
            store.drop(op)
            warnings.warn(_complaint(op, name, before, value), SharedOpChanged, stacklevel=2)
    object.__setattr__(op, name, value)


def _refusal(op: Any, name: str, before: Any, value: Any) -> str:
    cls = type(op)
    return (
        f"{cls.__module__}.{cls.__qualname__}: prop {name!r} of a shared op cannot be changed from {before!r} to "
        f"{value!r}, because the op stands for copies of it, too. The op stays as it is.\n"
        f"HINT: make another op, {cls.__name__}(..., {name}={value!r}), or change optdb.cache.unshared_copy(op)."
    )


def _complaint(op: Any, name: str, before: Any, value: Any) -> str:
    cls = type(op)
    return (
        f"{cls.__module__}.{cls.__qualname__}: prop {name!r} of a shared op was changed from {before!r} to {value!r}. "
        f"Every graph that used this op has changed with it.\n"
        f"HINT: make another op instead, {cls.__name__}(..., {name}={value!r})."
    )

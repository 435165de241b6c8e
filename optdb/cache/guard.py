"""Detects changes to the props of shared ops.

Theano allows such changes, and some ops count in a prop how often they ran. So
the guard makes the change, drops the op from the store, and warns of the class
and the prop; a warning filter makes it an error. Where the op also stands for a
copy, the guard refuses the change: the original must not change with its copy.

The guard exists only where ``__debug__`` is true: under ``python -O`` it costs
nothing.
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
    """A prop of a shared op was changed, which changes every graph with this op."""


def set_attribute(op: Any, name: str, value: Any) -> None:
    """Set an attribute of `op`; drop a shared op from the store if a prop changes.

    Warns
    -----
    SharedOpChanged
        If the value differs from the one in the op's key.

    Raises
    ------
    SharedOpChanged
        If the op also stands for copies of it: changing a copy must not change the original.
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

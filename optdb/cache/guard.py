"""Detects changes to the defining attributes of a shared op, which form the op's key in the store.

Theano allows such changes, so the guard makes the change, drops the op from the store, and warns. If `copy` has
returned the op instead of a copy, the guard refuses the change. Under ``python -O`` there is no guard.
"""

from __future__ import annotations

import warnings
from typing import Any

from optdb.cache.construct import store
from optdb.cache.frozen import Freezer
from optdb.host.api.definition import declared, defining_attributes

_frozen = Freezer(changing=True)


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


_MISSING = _Missing()


class SharedOpChanged(RuntimeWarning):
    """Warns that a defining attribute of a shared op was changed, which affects every graph that contains the op."""


def set_attribute(op: Any, name: str, value: Any) -> None:
    """Set an attribute of `op`; if this changes the key of a shared op, remove the op from the store, and warn.

    If `copy` has returned the op instead of a copy, raise the warning as an error.
    """
    _check(op, name, value)
    object.__setattr__(op, name, value)


def delete_attribute(op: Any, name: str) -> None:
    """Delete an attribute of `op`; see `set_attribute`."""
    _check(op, name, _MISSING)
    object.__delattr__(op, name)


def _check(op: Any, name: str, value: Any) -> None:
    entry = store.entry(op)
    if entry is None or name not in defining_attributes(op, [name for name, _ in entry.key.rest]):
        return
    before = getattr(op, name, _MISSING)
    if before is value or _frozen(before) == _frozen(value) or _says_nothing(name, before, value):
        return
    if entry.stands_for_copies:
        raise SharedOpChanged(_refusal(op, name, before, value))
    store.drop(op)
    warnings.warn(_complaint(op, name, before, value), SharedOpChanged, stacklevel=3)


def _says_nothing(name: str, before: Any, value: Any) -> bool:
    """Return whether the change only adds an empty destroy or view map, which happens when a Scan is printed."""
    return name in ("destroy_map", "view_map") and before is _MISSING and not value


def _refusal(op: Any, name: str, before: Any, value: Any) -> str:
    cls = type(op)
    return (
        f"{cls.__module__}.{cls.__qualname__}: {_kind(cls, name)} of a shared op cannot be changed from {before!r} "
        f"to {value!r}, because all graphs that use the op share it. The op is unchanged.\n"
        f"HINT: create another op, {cls.__name__}(..., {name}={value!r}), or change optdb.cache.unshared_copy(op)."
    )


def _complaint(op: Any, name: str, before: Any, value: Any) -> str:
    cls = type(op)
    return (
        f"{cls.__module__}.{cls.__qualname__}: {_kind(cls, name)} of a shared op was changed from {before!r} to "
        f"{value!r}. Every graph that used this op has changed with it.\n"
        f"HINT: create another op instead, {cls.__name__}(..., {name}={value!r})."
    )


def _kind(cls: type, name: str) -> str:
    return f"{'prop' if name in (declared(cls) or ()) else 'attribute'} {name!r}"

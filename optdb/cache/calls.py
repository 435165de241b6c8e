"""The fast path: a repeated constructor call returns its earlier op without building one.

The store can look up an op by its key only after the op is built. For the few
classes that are constructed most often, and whose constructors only store their
arguments, the call itself is the key. Arguments are compared as strictly as
props; a call with anything but integers, strings, None, ops and sequences or
mappings of them takes the slow path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optdb.cache.store import Store
from optdb.host.api.definition import is_repeatable, settings
from optdb.host.api.graph import PureOp

_PLAIN = frozenset({int, bool, str, type(None)})


class _NoKey(Exception):
    """An argument that cannot be part of a call's key."""


def call_key(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a hashable key of a constructor's call; None if there is none.

    Ops are represented by their ids, so the caller has to keep the arguments alive along with the key.
    """
    if not is_repeatable(cls):
        return None
    try:
        return (cls, settings(cls), _sequence(args), _mapping(kwargs) if kwargs else None)
    except _NoKey:
        return None


def _sequence(items: Any) -> tuple[Any, ...]:
    types = tuple(map(type, items))
    if _PLAIN.issuperset(types):
        return (types, *items)
    return (types, *map(_key, items))


def _mapping(items: Any) -> tuple[Any, ...]:
    return tuple([(_key(key), _key(value)) for key, value in items.items()])


def _key(value: Any) -> Any:
    cls = type(value)
    if cls in _PLAIN:
        return (cls, value)
    if cls is tuple or cls is list:
        return (cls, _sequence(value))
    if isinstance(value, PureOp):
        return (cls, id(value))
    if isinstance(value, Mapping):
        return (cls, _mapping(value))
    raise _NoKey


def recall(store: Store, key: Any) -> PureOp | None:
    """Return the op that an equal call returned, if it is still alive."""
    entry = store.calls.get(key)
    op = None if entry is None else entry[0]()
    if op is not None:
        store.counts.found += 1
    return op


def remember(store: Store, key: Any, arguments: Any, op: PureOp) -> None:
    """Record that a call returned `op`, if the op is shared."""
    entry = store.entry(op)
    if entry is None:
        return
    entry.calls.append(key)
    store.calls[key] = (entry, arguments)

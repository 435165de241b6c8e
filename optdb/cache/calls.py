"""The fast path: a repeated constructor call returns its earlier op without building one.

The store can look an op up by its key only once the op is built. For the few
classes that are constructed most often, and whose constructors only keep their
arguments, the call itself is the key. Arguments are compared as strictly as
props are; a call with anything but numbers, names, ops and tuples or small
dicts of them takes the slow path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optdb.cache.store import Store
from optdb.host.api.definition import is_repeatable, settings
from optdb.host.api.graph import PureOp

_PLAIN = frozenset({int, bool, str, type(None)})


class _NoKey(Exception):
    """An argument that says too little about what the constructor makes of it."""


def call_key(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a hashable key of a constructor's call, None if there can be none.

    Ops in it stand by their ids, so that the caller has to hold the arguments along with the key.
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
    """Return the op that an equal call returned, while that op is alive."""
    entry = store.calls.get(key)
    op = None if entry is None else entry[0]()
    if op is not None:
        store.counts.found += 1
    return op


def remember(store: Store, key: Any, arguments: Any, op: PureOp) -> None:
    """Note that a call gave `op`, if it is shared."""
    entry = store.entry(op)
    if entry is None:
        return
    entry.calls.append(key)
    store.calls[key] = (entry, arguments)

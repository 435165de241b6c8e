"""Constructs ops, and reuses equal ops from the store.

A call of an op class builds an op; if the store has an equal op, the call returns that op instead. For a few frequently
constructed classes, equal arguments always give equal ops (`is_repeatable`). If the arguments of a call to one of these
classes are plain values, they form a key (`_call_key`), and later calls with the same key return the op without
building another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optdb.cache.store import Store
from optdb.host.api.definition import is_repeatable, settings
from optdb.host.api.graph import PureOp

_PLAIN = frozenset({int, bool, str, type(None)})


class _NoKey(Exception):
    pass


def _call_key(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a hashable key for a constructor call, in which ids represent ops; None if the call must build an op."""
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
    return (types, *map(_argument_key, items))


def _mapping(items: Any) -> tuple[Any, ...]:
    return tuple([(_argument_key(key), _argument_key(value)) for key, value in items.items()])


def _argument_key(value: Any) -> Any:
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


def _recall(store: Store, key: Any) -> PureOp | None:
    entry = store.calls.get(key)
    op = None if entry is None else entry[0]()
    if op is not None:
        store.counts.found += 1
    return op


def _remember(store: Store, key: Any, arguments: Any, op: PureOp) -> None:
    entry = store.entry(op)
    if entry is None:
        return
    entry.calls.append(key)
    store.calls[key] = (entry, arguments)


store = Store()


def construct(cls: type, /, *args: Any, **kwargs: Any) -> Any:
    """Return the shared op that is equal to ``cls(*args, **kwargs)``."""
    key = _call_key(cls, args, kwargs)
    if key is not None:
        cached = _recall(store, key)
        if cached is not None:
            return cached
    op = type.__call__(cls, *args, **kwargs)
    if not isinstance(op, PureOp):
        return op
    shared = store.share(op)
    if key is not None:
        _remember(store, key, (args, kwargs), shared)
    return shared

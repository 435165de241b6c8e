"""The short way: a call that was made before gives the op that it gave then.

Finding an op by its key means making it first. For the few classes that are
made all the time, and whose constructors do nothing but keep their arguments,
the call itself is the key. Arguments are compared as strictly as props are;
a call with anything else than numbers, names, ops and tuples or small dicts of
them goes the long way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optdb.cache.store import Store
from optdb.host.definition import is_repeatable, settings
from optdb.host.graph import PureOp

_PLAIN = frozenset({int, bool, str, type(None)})


class _NoKey(Exception):
    """An argument that says too little about what the constructor makes of it."""


def call_key(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a hashable key of a constructor's call, None if there can be none.

    Ops in it stand by their ids: whoever keeps the key keeps the arguments, too.
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
    """Return the op that this call gave before, while it lives."""
    known = store.calls.get(key)
    op = None if known is None else known[0]()
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

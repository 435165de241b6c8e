"""The store of shared ops: while an op in the store is in use, it represents all ops that are equal to it.

The store holds weak references, and lookups take no lock. An op may be garbage-collected while the current thread holds
the lock. The op's entry is then only marked as dead; it is removed from all tables when the next op is added.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

from optdb.cache.key import Key, Keys, Unshareable
from optdb.cache.stats import Counts
from optdb.host.api import identity
from optdb.host.api.definition import has_props
from optdb.host.api.graph import PureOp


class SharedOpRef(weakref.ref[PureOp]):
    """A weak reference to a shared op, with its keys in the store.

    Attributes
    ----------
    op_id : int
        ``id`` of the op.
    key : Key
        The op's key at the time it was shared.
    calls : list
        Keys of the constructor calls that return this op; see :mod:`optdb.cache.construct`.
    stands_for_copies : bool
        Whether `copy` has returned the op instead of a copy.
    """

    __slots__ = ("calls", "key", "op_id", "stands_for_copies")

    def __new__(cls, op: PureOp, key: Key, store: Store) -> SharedOpRef:
        return super().__new__(cls, op, store._gone)

    def __init__(self, op: PureOp, key: Key, store: Store) -> None:
        super().__init__(op, store._gone)  # type: ignore[call-arg]  # typeshed declares only __new__
        self.op_id = id(op)
        self.key = key
        self.calls: list[Any] = []
        self.stands_for_copies = False


class Store:
    """Shared ops, indexed by their defining values.

    Attributes
    ----------
    counts : Counts
        The counters of the store.
    calls : dict
        Maps the key of a constructor call to ``(entry, arguments)``. Keeping a reference to the arguments ensures that
        the ids in the key remain valid.
    """

    def __init__(self) -> None:
        self.counts = Counts()
        self.calls: dict[Any, tuple[SharedOpRef, Any]] = {}
        self._keys = Keys(self.find)
        self._by_key: dict[Any, SharedOpRef] = {}
        self._by_id: dict[int, SharedOpRef] = {}
        #: Maps a class and the values of its props to one op, to find the attributes in which later ops with the same
        #: props differ from this op.
        self._by_props: dict[Any, SharedOpRef] = {}
        self._dead: deque[SharedOpRef] = deque()
        # These objects are attributes, because ops are also collected at interpreter shutdown, when module globals are
        # already gone.
        self._settled = identity.settled
        self._covered: weakref.WeakSet[type] = weakref.WeakSet()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[PureOp]:
        """Yield the shared ops that are alive."""
        for entry in list(self._by_id.values()):
            op = entry()
            if op is not None:
                yield op

    def entry(self, op: PureOp) -> SharedOpRef | None:
        """Return the entry for an op; None if the op is not shared."""
        return self._by_id.get(id(op))

    def find(self, op: PureOp) -> PureOp | None:
        """Return the shared op that is equal to `op`; None if there is none."""
        if id(op) in self._by_id:
            return op
        try:
            return self._alive(self._keys.of(op).whole)
        except Unshareable:
            return None

    def share(self, op: PureOp) -> PureOp:
        """Return the shared op that is equal to `op`; if none exists, share `op` if possible, and return `op`."""
        if id(op) in self._by_id:
            return op
        try:
            key = self._keys.of(op)
        except Unshareable as reason:
            self.counts.refuse(type(op), str(reason))
            return op
        shared = self._add_unless_shared(op, key)
        if shared is not op:
            self.counts.found += 1
        return shared

    def adopt(self, op: PureOp) -> PureOp:
        """Share `op` as `share` does, but do not count it, because no constructor made it."""
        if id(op) in self._by_id:
            return op
        try:
            key = self._keys.of(op)
        except Unshareable:
            return op
        return self._add_unless_shared(op, key)

    def _add_unless_shared(self, op: PureOp, key: Key) -> PureOp:
        shared = self._alive(key.whole)
        if shared is not None:
            return shared
        with self._lock:
            return self._alive(key.whole) or self._add(op, key)

    def drop(self, op: PureOp) -> None:
        """Remove `op` from the store."""
        with self._lock:
            entry = self._by_id.get(id(op))
            if entry is not None:
                self._gone(entry)
            self._sweep()

    def forget(self, keep: type | None = None) -> None:
        """Remove all ops from the store, except for those of class `keep`."""
        with self._lock:
            for entry in list(self._by_id.values()):
                op = entry()
                if keep is None or not isinstance(op, keep):
                    self._gone(entry)
            self._covered.clear()
            self._sweep()

    def _alive(self, key: Any) -> PureOp | None:
        entry = self._by_key.get(key)
        return None if entry is None else entry()

    def _add(self, op: PureOp, key: Key) -> PureOp:
        self._sweep()
        entry = SharedOpRef(op, key, self)
        self._by_key[key.whole] = entry
        if self._alive(key.unnamed) is None:
            self._by_key[key.unnamed] = entry
        self._by_id[entry.op_id] = entry
        self._compare_with_likeness(entry)
        if type(op) not in self._covered:
            self._covered.add(type(op))
            identity.cover(type(op))
        self._settled[entry.op_id] = None
        self.counts.shared += 1
        return op

    def _compare_with_likeness(self, entry: SharedOpRef) -> None:
        """Count the op if an earlier op has the same props but differs in other attributes."""
        key = entry.key
        if not has_props(key.declared[0]):
            return
        like = self._by_props.setdefault(key.declared, entry)
        if like() is None:
            self._by_props[key.declared] = entry
        elif like.key.rest != key.rest:
            self.counts.add_difference(key.declared[0], _difference(like.key, key))

    def _gone(self, entry: SharedOpRef) -> None:
        if self._by_id.get(entry.op_id) is entry:
            del self._by_id[entry.op_id]
            self._settled.pop(entry.op_id, None)
            self._dead.append(entry)

    def _sweep(self) -> None:
        while self._dead:
            entry = self._dead.popleft()
            for key in (entry.key.whole, entry.key.unnamed):
                if self._by_key.get(key) is entry:
                    del self._by_key[key]
            if self._by_props.get(entry.key.declared) is entry:
                del self._by_props[entry.key.declared]
            for call in entry.calls:
                if self.calls.get(call, (None,))[0] is entry:
                    del self.calls[call]


def _difference(key: Key, other_key: Key) -> tuple[str, ...]:
    attributes, other_attributes = dict(key.rest), dict(other_key.rest)
    names = {*attributes, *other_attributes}
    missing = object()
    return tuple(sorted(name for name in names if attributes.get(name, missing) != other_attributes.get(name, missing)))

"""A cache of values by op, for functions that are called for each node of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_MOST_OPS = 100_000


class CachedByOp(Generic[T]):
    """The values of a function of ops, computed once for each op object, because hashing an op takes long."""

    __slots__ = ("_compute", "known")

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        #: Ids are not reused, because the ops are kept alive.
        self.known: dict[int, tuple[Any, T]] = {}

    def __call__(self, op: Any) -> T:
        """Return the value of an op."""
        known = self.known
        entry = known.get(id(op))
        if entry is None:
            if len(known) > _MOST_OPS:
                known.clear()
            entry = known[id(op)] = (op, self._compute(op))
        return entry[1]

"""Remembers what launches need beside their arrays: bound arguments, plans, tables.

Working these out takes longer than most launches, and depends on shapes and strides, of which a program uses few.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")

#: For so many keys a cache remembers values unless it is told otherwise.
SIZE = 64

#: Owns no value.
_NOBODY = object()


class LaunchCache(Generic[Value]):
    """A mapping of bounded size, whose values are worked out when they are asked for.

    Threads may share it: at worst, two of them work out the same value.

    Parameters
    ----------
    size : int
        How many values it holds at most. It forgets all when there would be more: a program that uses so many
        shapes hardly comes back to the first ones.
    """

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._entries: dict[Hashable, tuple[object, Value]] = {}

    def get(self, key: Hashable, make: Callable[[], Value], owner: object = None) -> Value:
        """Return the value for a key.

        Parameters
        ----------
        key : hashable
            What the value depends on.
        make : callable
            Works the value out.
        owner : object
            What else it depends on, by identity, such as the kernels that are launched: with another owner, the
            value is worked out again.
        """
        made_for, value = self._entries.get(key, (_NOBODY, None))
        if made_for is not owner:
            value = make()
            if len(self._entries) >= self._size:
                self._entries.clear()
            self._entries[key] = owner, value
        return value

    def values(self) -> list[Value]:
        """Return what it holds now."""
        return [value for _, value in self._entries.values()]

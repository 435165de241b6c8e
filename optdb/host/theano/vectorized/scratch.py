"""Memory for intermediate values: a free list of byte buffers that all nodes share.

A node takes a pool while it computes and then puts it back, so that two threads, or a node that runs inside another
node's computation, never share one. A single thread gets the same pool each time, and nodes keep their views of
it.
"""

from __future__ import annotations

from collections import deque

import numpy as np

__all__ = ["BLOCK_ITEMS", "Pool", "borrow", "give_back"]

#: The number of elements that are computed at once. Their intermediate values fit in the second-level cache.
BLOCK_ITEMS = 16384
#: The size of the largest item, complex128.
_ITEM_BYTES = 16


class Pool:
    """Numbered buffers of one block each."""

    def __init__(self) -> None:
        self._buffers: list[np.ndarray] = []

    def view(self, number: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return a C-contiguous array of at most one block in the buffer with this number."""
        while len(self._buffers) <= number:
            self._buffers.append(np.empty(BLOCK_ITEMS * _ITEM_BYTES, np.uint8))
        return np.ndarray(shape, dtype, self._buffers[number])


_free: deque[Pool] = deque()


def borrow() -> Pool:
    """Take an unused pool."""
    try:
        return _free.pop()
    except IndexError:
        return Pool()


def give_back(pool: Pool) -> None:
    """Release the pool."""
    _free.append(pool)

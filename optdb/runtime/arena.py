"""Arenas: memory shared by values with disjoint live ranges, by best-fit allocation.

Each value has a *span*: the first and the last step that needs it. Values are placed in the order of their first steps,
each in the smallest gap that fits it.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence

#: The alignment of values in bytes, which the widest vector types in OpenCL require.
ALIGNMENT = 128

#: The first and the last step that needs a value, and the value's size in bytes.
Span = tuple[int, int, int]


def peak(spans: Sequence[Span]) -> int:
    """Return the maximum number of bytes live at once, a lower bound for any packing."""
    changes = sorted(change for first, last, nbytes in spans for change in ((first, 1, nbytes), (last + 1, 0, -nbytes)))
    now = most = 0
    for _, _, nbytes in changes:
        now += nbytes
        most = max(most, now)
    return most


def pack(spans: Sequence[Span], limit: int | None = None) -> tuple[list[tuple[int, int]], list[int]]:
    """Assign each value a byte range in one of several pieces of memory.

    A piece has at most `limit` bytes, unless it holds a single larger value. Return each value's piece and offset, and
    each piece's size in bytes.
    """
    offsets = [(0, 0)] * len(spans)
    pieces: list[_Gaps] = []
    alive: list[tuple[int, int, int, int]] = []  # a heap: last step, piece, offset, size
    for number in sorted(range(len(spans)), key=lambda i: (spans[i][0], -spans[i][2])):
        first, last, nbytes = spans[number]
        size = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        while alive and alive[0][0] < first:
            _, piece, start, past_size = heapq.heappop(alive)
            pieces[piece].give(start, past_size)
        offsets[number] = _take(pieces, size, limit)
        heapq.heappush(alive, (last, *offsets[number], size))
    return offsets, [piece.total for piece in pieces]


def _take(pieces: list[_Gaps], size: int, limit: int | None) -> tuple[int, int]:
    for number, piece in enumerate(pieces):
        start = piece.take(size, limit)
        if start is not None:
            return number, start
    pieces.append(_Gaps())
    pieces[-1].take(size, None)
    return len(pieces) - 1, 0


class _Gaps:
    """The free gaps below `total`, indexed by start and by end, and sorted by size."""

    def __init__(self) -> None:
        self.total = 0
        self._sizes: dict[int, int] = {}
        self._starts: dict[int, int] = {}
        self._sorted: list[tuple[int, int]] = []

    def take(self, size: int, limit: int | None) -> int | None:
        """Return the start of `size` free bytes in the smallest gap that fits, or at the end; None beyond the limit."""
        index = bisect.bisect_left(self._sorted, (size, 0))
        if index == len(self._sorted):
            return self._grow(size, limit)
        room, start = self._sorted[index]
        self._remove(start)
        if room > size:
            self._add(start + size, room - size)
        return start

    def give(self, start: int, size: int) -> None:
        """Free a range and merge it with adjacent gaps."""
        before = self._starts.get(start)
        if before is not None:
            start, size = before, size + self._remove(before)
        if start + size in self._sizes:
            size += self._remove(start + size)
        self._add(start, size)

    def _add(self, start: int, size: int) -> None:
        self._sizes[start] = size
        self._starts[start + size] = start
        bisect.insort(self._sorted, (size, start))

    def _remove(self, start: int) -> int:
        size = self._sizes.pop(start)
        del self._starts[start + size]
        del self._sorted[bisect.bisect_left(self._sorted, (size, start))]
        return size

    def _grow(self, size: int, limit: int | None) -> int | None:
        """Add `size` free bytes at the end of the arena, with a gap that is there; return their start."""
        start = self._starts.get(self.total, self.total)
        if limit is not None and start + size > limit:
            return None
        if start < self.total:
            self._remove(start)
        self.total = start + size
        return start

"""Memory for values that do not live at the same time, in one piece.

Each value has a *span*: the first and the last step that needs it. Values whose spans do not meet may lie at the same
place. Going through the steps in order, a value gets the smallest gap that it fits into; gaps that meet become one.
This is first-come best-fit: not the least memory there could be, but near it, and quick for thousands of values.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ALIGNMENT", "pack", "pack_in_pieces"]

#: In bytes: what the widest vectors of a kernel ask for.
ALIGNMENT = 128

Span = tuple[int, int, int]


def pack(spans: Sequence[Span]) -> tuple[list[int], int]:
    """Give each value a place.

    Parameters
    ----------
    spans : sequence of (int, int, int)
        First step, last step, size in bytes.

    Returns
    -------
    offsets : list of int
        Where each value begins, in bytes.
    total : int
        How many bytes there have to be.
    """
    places, totals = pack_in_pieces(spans, None)
    return [offset for _, offset in places], sum(totals)


def pack_in_pieces(spans: Sequence[Span], limit: int | None) -> tuple[list[tuple[int, int]], list[int]]:
    """Give each value a place in one of several pieces of memory.

    Parameters
    ----------
    spans : sequence of (int, int, int)
        First step, last step, size in bytes.
    limit : int or None
        How large a piece may be, in bytes, unless a value by itself is larger; None if there is to be but one.

    Returns
    -------
    places : list of (int, int)
        For each value, the number of the piece, and where in it the value begins, in bytes.
    totals : list of int
        How many bytes each piece has to have.
    """
    places = [(0, 0)] * len(spans)
    pieces: list[_Gaps] = []
    alive: list[tuple[int, int, int, int]] = []  # last step, piece, offset, size
    for number in sorted(range(len(spans)), key=lambda i: (spans[i][0], -spans[i][2])):
        first, last, nbytes = spans[number]
        size = -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        for past in [value for value in alive if value[0] < first]:
            alive.remove(past)
            pieces[past[1]].give(past[2], past[3])
        places[number] = _take(pieces, size, limit)
        alive.append((last, *places[number], size))
    return places, [piece.total for piece in pieces]


def _take(pieces: list[_Gaps], size: int, limit: int | None) -> tuple[int, int]:
    """Return a place in the first piece that has one, or in a new one."""
    for number, piece in enumerate(pieces):
        start = piece.take(size, limit)
        if start is not None:
            return number, start
    pieces.append(_Gaps())
    return len(pieces) - 1, pieces[-1].take(size, None)


class _Gaps:
    """The free pieces below `total`, sorted by where they begin."""

    def __init__(self) -> None:
        self.total = 0
        self._free: list[tuple[int, int]] = []

    def take(self, size: int, limit: int | None) -> int | None:
        """Return where there are `size` bytes: the smallest gap that has them, or the end; None beyond the limit."""
        fitting = [gap for gap in self._free if gap[1] >= size]
        if not fitting:
            return self._grow(size, limit)
        start, room = gap = min(fitting, key=lambda gap: gap[1])
        self._free.remove(gap)
        if room > size:
            self.give(start + size, room - size)
        return start

    def give(self, start: int, size: int) -> None:
        """Take a piece back; it grows together with its neighbours."""
        for begin, room in list(self._free):
            if begin + room == start:
                self._free.remove((begin, room))
                start, size = begin, room + size
            elif start + size == begin:
                self._free.remove((begin, room))
                size += room
        self._free.append((start, size))

    def _grow(self, size: int, limit: int | None) -> int | None:
        """Append `size` bytes, a last gap included."""
        last = next((gap for gap in self._free if sum(gap) == self.total), None)
        start = self.total if last is None else last[0]
        if limit is not None and start + size > limit:
            return None
        if last is not None:
            self._free.remove(last)
        self.total = start + size
        return start

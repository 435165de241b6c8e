"""The memory of arrays as address ranges: one binary search finds whether another array overlaps any of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from optdb.numpy_types import HostArray

__all__ = ["AddressRanges"]


class AddressRanges:
    """The ranges from the first to the last byte of each array, as ``numpy.may_share_memory`` compares them."""

    def __init__(self) -> None:
        # Ascending; no two ranges overlap.
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, array: HostArray) -> None:
        """Add an array's memory; an array without elements has none."""
        start, end = _bounds(array)
        if start == end:
            return
        first, last = self._met(start, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]

    def overlap(self, array: HostArray) -> bool:
        """Tell whether an array may share memory with any added array."""
        start, end = _bounds(array)
        first, last = self._met(start, end)
        return start < end and first < last

    def clear(self) -> None:
        """Forget all arrays."""
        self._starts.clear()
        self._ends.clear()

    def _met(self, start: int, end: int) -> tuple[int, int]:
        """Return the slice of the ranges that overlap another range."""
        return bisect_right(self._ends, start), bisect_left(self._starts, end)


def _bounds(array: HostArray) -> tuple[int, int]:
    """Return the address of an array's first byte, and the address after its last byte."""
    start = array.__array_interface__["data"][0]
    if array.flags.c_contiguous or not array.size:
        return start, start + array.nbytes
    spans = [(length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(span, 0) for span in spans), start + sum(max(span, 0) for span in spans) + array.itemsize

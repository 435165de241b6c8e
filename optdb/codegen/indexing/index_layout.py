"""The elements selected by an advanced index, computed on the host from shapes and strides alone.

An index of slices, ``None``, integers, integer arrays and masks selects a grid of elements: each slice gives a strided
axis, and all arrays and masks together give one axis of positions. A :class:`Pattern` contains the properties that
depend only on the kinds of the entries; `find` computes the grid from the values of the entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.layout import size_of
from optdb.codegen.operation import ArraySpec
from optdb.numpy_types import HostArray
from optdb.runtime.deferred import DeferredArray, stable_order
from optdb.runtime.sizes import part_of
from optdb.runtime.tables import computed

#: The kind of an index entry: an integer array or a mask, ``slice``, or ``None``.
EntryKind = ArraySpec | type[slice] | None


@dataclass(frozen=True)
class Pattern:
    """The properties of an index that follow from the kinds of its entries alone."""

    #: Number of strided axes of the result that precede the axes of the index arrays, and number of those that follow.
    before: int
    after: int
    #: Number of axes of the index arrays, after they are broadcast against each other.
    ndim: int

    @property
    def axes(self) -> int:
        """The number of grid axes: the strided axes, and one axis of positions."""
        return self.before + 1 + self.after


def pattern_of(ndim: int, index: Sequence[EntryKind]) -> Pattern:
    """Return the pattern for an index into an array with `ndim` axes, given the kinds of the index's entries."""
    stepped: list[bool] = []
    consumed, widest = 0, 0
    for entry in index:
        stepped.append(not isinstance(entry, ArraySpec))
        if isinstance(entry, ArraySpec):
            is_mask = entry.dtype == "bool"
            consumed += entry.ndim if is_mask else 1
            widest = max(widest, 1 if is_mask else entry.ndim)
        else:
            consumed += entry is slice
    total = sum(stepped) + max(ndim - consumed, 0)
    arrays = [i for i, strided in enumerate(stepped) if not strided]
    # If all arrays are adjacent in the index, the result has their axes at the arrays' position; otherwise, the result
    # has their axes first.
    together = bool(arrays) and not any(stepped[arrays[0] : arrays[-1]])
    before = arrays[0] if together else 0
    return Pattern(before, total - before, widest)


@dataclass(frozen=True)
class IndexArray:
    """Integers that select elements along one axis, or along several contiguous axes."""

    values: HostArray
    #: Length and stride of the axis.
    length: int
    step: int
    #: Whether values may be negative; negative values count from the end.
    signed: bool = True

    def valid(self) -> bool:
        """Return whether all values are in bounds."""
        values = self.values
        if not self.signed or not values.size:
            return True
        return bool(-self.length <= values.min() and values.max() < self.length)

    def nonnegative(self) -> HostArray:
        """Return the values as nonnegative int64 numbers: the axis's length is added to negative values."""
        values = self.values.astype(np.int64, copy=False)
        return np.where(values < 0, values + self.length, values) if self.signed else values


@dataclass(frozen=True)
class IndexLayout:
    """The positions of the elements selected by an index."""

    #: Lengths, strides and offset of the strided axes, in elements.
    lengths: tuple[int, ...]
    steps: tuple[int, ...]
    start: int
    #: The arrays of the index, and the shape that they are broadcast to.
    arrays: Sequence[IndexArray]
    shape: tuple[int, ...]
    pattern: Pattern

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of the result of indexing."""
        before = self.pattern.before
        return (*self.lengths[:before], *self.shape, *self.lengths[before:])

    @property
    def count(self) -> int:
        """The number of positions, including duplicates."""
        return size_of(self.shape)

    def offsets(self) -> HostArray:
        """Return the offset of each position, in elements."""
        return self._sum([numbers.step for numbers in self.arrays]) + self.start

    def names(self) -> tuple[HostArray, int]:
        """Return an id for each position, and an upper bound on the ids.

        Positions of the same element have the same id.
        """
        weights: list[int] = []
        total = 1
        for numbers in reversed(self.arrays):
            weights.insert(0, total)
            total *= numbers.length
        return self._sum(weights), total

    def _sum(self, weights: Sequence[int]) -> HostArray:
        total = np.zeros(self.shape, np.int64)
        for numbers, weight in zip(self.arrays, weights, strict=True):
            total += numbers.nonnegative() * weight
        return total.ravel()


def find(pattern: Pattern, shape: Sequence[int], strides: Sequence[int], index: Sequence[Any]) -> IndexLayout:
    """Return the layout of an index into an array whose strides are in elements; raise IndexError as NumPy does."""
    lengths: list[int] = []
    steps: list[int] = []
    arrays: list[IndexArray] = []
    start = axis = 0
    consumed = sum(entry.ndim if _is_mask(entry) else entry is not None for entry in index)
    for entry in (*index, *[slice(None)] * (len(shape) - consumed)):
        if entry is None:
            lengths.append(1)
            steps.append(0)
            continue
        width = entry.ndim if _is_mask(entry) else 1
        axis_lengths, axis_strides = shape[axis : axis + width], strides[axis : axis + width]
        axis += width
        if len(axis_lengths) < width or (_is_mask(entry) and entry.shape != tuple(axis_lengths)):
            check_by_numpy(shape, index)
            raise IndexError(f"an index of {len(index)} entries does not fit an array of shape {tuple(shape)}")
        if isinstance(entry, slice):
            first, count, step = part_of(axis_lengths[0], entry)
            lengths.append(count)
            steps.append(step * axis_strides[0])
            start += first * axis_strides[0] if count else 0
        elif _is_mask(entry):
            arrays += _mask_indices(entry, axis_strides)
        else:
            arrays.append(IndexArray(np.asarray(entry), axis_lengths[0], axis_strides[0]))
    named = _broadcast_shape(arrays, shape, index)
    return IndexLayout(tuple(lengths), tuple(steps), start, arrays, named, pattern)


def _broadcast_shape(arrays: Sequence[IndexArray], shape: Sequence[int], index: Sequence[Any]) -> tuple[int, ...]:
    try:
        named = np.broadcast_shapes(*[numbers.values.shape for numbers in arrays])
    except ValueError as error:
        check_by_numpy(shape, index)
        raise IndexError(*error.args) from None
    if not all(numbers.valid() for numbers in arrays):
        check_by_numpy(shape, index)
    return named


def grouped(names: HostArray) -> tuple[HostArray, HostArray]:
    """Return a stable order in which equal nonnegative numbers are adjacent, and where each group of them starts."""
    order = stable_order(names)
    return order, np.flatnonzero(np.diff(names[order], prepend=-1))


def _is_mask(entry: Any) -> bool:
    return getattr(entry, "dtype", None) == np.bool_


def _mask_indices(mask: HostArray, steps: Sequence[int]) -> list[IndexArray]:
    """Return the index arrays for a mask: one flat array if the masked axes are contiguous, else one array per axis."""
    if not mask.ndim:  # a 0-d mask adds an axis to the result, and indexes no axis
        return [IndexArray(np.zeros(int(mask), np.int64), 1, 0, signed=False)]
    if all(outer == inner * n for outer, inner, n in zip(steps, steps[1:], mask.shape[1:])):
        return [IndexArray(np.flatnonzero(mask), mask.size, steps[-1], signed=False)]
    pairs = zip(mask.nonzero(), mask.shape, steps, strict=True)
    return [IndexArray(values, length, step, signed=False) for values, length, step in pairs]


def check_by_numpy(shape: Sequence[int], index: Sequence[Any]) -> None:
    """Raise NumPy's error for an index; if the index selects no elements, older NumPy versions only warn."""
    np.broadcast_to(np.zeros((), np.int8), tuple(shape))[tuple(index)]


def last_mentions(names: HostArray, total: int) -> HostArray:
    """Return, in ascending order, where each integer occurs last in `names`; all integers are below `total`."""
    mentions = np.arange(len(names))
    if total > 64 * max(len(names), 1024):  # a table with `total` entries would be mostly empty
        _, from_behind = np.unique(names[::-1], return_index=True)
        return np.sort(len(names) - 1 - from_behind)
    table = np.empty(total, np.int64)
    table[names] = mentions
    return np.flatnonzero(table[names] == mentions)


def host_indexes(values: HostArray, length: int, op: Any, axis: int = 0) -> HostArray | DeferredArray:
    """Return indexes as nonnegative int64 numbers; raise IndexError if an index is out of bounds."""
    try:
        return computed("indexes", values, length, axis)
    except IndexError as error:
        raise IndexError(f"{op}: {error}") from None

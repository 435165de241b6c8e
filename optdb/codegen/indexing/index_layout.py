"""The elements of an array that an advanced index names, computed on the host from shapes and strides alone.

An index is a tuple of slices, ``None``, whole numbers, arrays of whole numbers and masks. It names a grid of elements:
some axes have strides, as slices have, and one axis of positions stands for all arrays together, in C order. A
:class:`Pattern` describes that grid by the kinds of the entries; `find` computes it from their values. NumPy itself
raises the error for an invalid index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.layout import size_of
from optdb.codegen.operation import ArraySpec
from optdb.numpy_types import HostArray
from optdb.runtime.deferred import DeferredArray
from optdb.runtime.sizes import part_of
from optdb.runtime.tables import computed

#: What an entry of an index is: an array of whole numbers or a mask, ``slice``, or ``None``.
EntryKind = ArraySpec | type[slice] | None


@dataclass(frozen=True)
class Pattern:
    """The properties of an index that the kinds of its entries give."""

    #: How many axes of the result, stepped through with strides, stand before and behind those of the arrays.
    before: int
    after: int
    #: How many axes of the result are those of the arrays, broadcast against each other.
    ndim: int

    @property
    def axes(self) -> int:
        """How many axes the grid has: those with strides, and one of positions."""
        return self.before + 1 + self.after


def pattern_of(ndim: int, index: Sequence[EntryKind]) -> Pattern:
    """Return what the kinds of the entries of an index tell, for an array of `ndim` axes."""
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
    # Arrays that stand together have their axes where they stand, and others in front.
    together = bool(arrays) and not any(stepped[arrays[0] : arrays[-1]])
    before = arrays[0] if together else 0
    return Pattern(before, total - before, widest)


@dataclass(frozen=True)
class IndexArray:
    """Whole numbers that name elements along an axis, or along several that lie one behind the other."""

    values: HostArray
    #: How many elements there are, and how far one is from the next.
    length: int
    step: int
    #: Whether numbers may be below zero: these count from the end.
    signed: bool = True

    def valid(self) -> bool:
        """Tell whether all numbers name elements."""
        values = self.values
        if not self.signed or not values.size:
            return True
        return bool(-self.length <= values.min() and values.max() < self.length)

    def from_front(self) -> HostArray:
        """Return the numbers, none below zero, as int64."""
        values = self.values.astype(np.int64, copy=False)
        return np.where(values < 0, values + self.length, values) if self.signed else values


@dataclass(frozen=True)
class IndexLayout:
    """Where the elements lie that an index names."""

    #: Of the axes that are stepped through; the steps are in elements.
    lengths: tuple[int, ...]
    steps: tuple[int, ...]
    #: The element where they begin.
    start: int
    #: The arrays of the index, and the shape to which they broadcast.
    arrays: Sequence[IndexArray]
    shape: tuple[int, ...]
    #: Where the axes stand.
    pattern: Pattern

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of what is named."""
        before = self.pattern.before
        return (*self.lengths[:before], *self.shape, *self.lengths[before:])

    @property
    def count(self) -> int:
        """How many positions there are, mentions of the same element counted each."""
        return size_of(self.shape)

    def offsets(self) -> HostArray:
        """Return where each position is, in elements."""
        return self._sum([numbers.step for numbers in self.arrays]) + self.start

    def names(self) -> tuple[HostArray, int]:
        """Return a number for each position, the same for the same element, and how many numbers there may be."""
        weights: list[int] = []
        total = 1
        for numbers in reversed(self.arrays):
            weights.insert(0, total)
            total *= numbers.length
        return self._sum(weights), total

    def _sum(self, weights: Sequence[int]) -> HostArray:
        total = np.zeros(self.shape, np.int64)
        for numbers, weight in zip(self.arrays, weights, strict=True):
            total += numbers.from_front() * weight
        return total.ravel()


def find(pattern: Pattern, shape: Sequence[int], strides: Sequence[int], index: Sequence[Any]) -> IndexLayout:
    """Return the elements that an index names in an array whose strides are in elements.

    Raises
    ------
    IndexError
        As NumPy does.
    """
    lengths: list[int] = []
    steps: list[int] = []
    arrays: list[IndexArray] = []
    start = axis = 0
    for entry in (*index, *[slice(None)] * (len(shape) - _consumed(index))):
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
            arrays += _of_mask(entry, axis_strides)
        else:
            arrays.append(IndexArray(np.asarray(entry), axis_lengths[0], axis_strides[0]))
    named = _broadcast_shape(arrays, shape, index)
    return IndexLayout(tuple(lengths), tuple(steps), start, arrays, named, pattern)


def _broadcast_shape(arrays: Sequence[IndexArray], shape: Sequence[int], index: Sequence[Any]) -> tuple[int, ...]:
    """Return the shape to which index arrays broadcast; raise IndexError, as NumPy does, if one is not valid."""
    try:
        named = np.broadcast_shapes(*[numbers.values.shape for numbers in arrays])
    except ValueError as error:
        check_by_numpy(shape, index)
        raise IndexError(*error.args) from None
    if not all(numbers.valid() for numbers in arrays):
        check_by_numpy(shape, index)
    return named


def grouped(names: HostArray, total: int) -> tuple[HostArray, HostArray]:
    """Return an order in which equal numbers below `total` stand together, as they came, and where each begins."""
    # NumPy sorts numbers of 16 bits without comparing them.
    order = np.argsort(names.astype(np.uint16) if total <= 1 << 16 else names, kind="stable")
    return order, np.flatnonzero(np.diff(names[order], prepend=-1))


def _is_mask(entry: Any) -> bool:
    return getattr(entry, "dtype", None) == np.bool_


def _consumed(index: Sequence[Any]) -> int:
    """Return how many axes an index consumes."""
    return sum(entry.ndim if _is_mask(entry) else entry is not None for entry in index)


def _of_mask(mask: HostArray, steps: Sequence[int]) -> list[IndexArray]:
    """Return what a mask names: one number for each position if its axes lie one behind the other, else several."""
    if not mask.ndim:  # it adds an axis, and names none
        return [IndexArray(np.zeros(int(mask), np.int64), 1, 0, signed=False)]
    if all(outer == inner * n for outer, inner, n in zip(steps, steps[1:], mask.shape[1:])):
        return [IndexArray(np.flatnonzero(mask), mask.size, steps[-1], signed=False)]
    pairs = zip(mask.nonzero(), mask.shape, steps, strict=True)
    return [IndexArray(values, length, step, signed=False) for values, length, step in pairs]


def check_by_numpy(shape: Sequence[int], index: Sequence[Any]) -> None:
    """Raise the error that NumPy has for an index; where nothing is named, its older versions only warn."""
    np.broadcast_to(np.zeros((), np.int8), tuple(shape))[tuple(index)]


def last_mentions(names: HostArray, total: int) -> HostArray:
    """Return the last mention of each name, a whole number below `total`, in the order of these mentions."""
    mentions = np.arange(len(names))
    if total > 64 * max(len(names), 1024):  # a table would be mostly empty
        _, from_behind = np.unique(names[::-1], return_index=True)
        return np.sort(len(names) - 1 - from_behind)
    table = np.empty(total, np.int64)
    table[names] = mentions
    return np.flatnonzero(table[names] == mentions)


def host_indexes(values: HostArray, length: int, op: Any, axis: int = 0) -> HostArray | DeferredArray:
    """Return indexes from the front, as int64.

    Raises
    ------
    IndexError
        If one is out of an axis of that length.
    """
    try:
        return computed("indexes", values, length, axis)
    except IndexError as error:
        raise IndexError(f"{op}: {error}") from None

"""Which elements of an array an advanced index names: worked out on the host, from shapes and strides alone.

An index is a tuple of slices, ``None``, whole numbers, arrays of whole numbers and masks, one value for each input of
a node. What it names is a grid: some axes that are stepped through with strides, as slices are, and one axis of places
that stands for all arrays together, in C order. :class:`Pattern` is what the types of the inputs tell of that grid
when a function is compiled; `find` is what the values tell when it runs. NumPy itself does the checks, on an array of
one byte, so that errors are those of the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.host import ops as host
from optdb.host.graph import Variable
from optdb.opencl.ops.layout import size_of


@dataclass(frozen=True)
class Pattern:
    """What is known of an index before its values are.

    Parameters
    ----------
    before, after : int
        How many axes of the result, stepped through with strides, stand before and behind those of the arrays.
    ndim : int
        How many axes of the result are those of the arrays, broadcast against each other.
    """

    before: int
    after: int
    ndim: int

    @property
    def axes(self) -> int:
        """How many axes the grid has: those with strides, and one of places."""
        return self.before + 1 + self.after


def pattern_of(ndim: int, index: Sequence[Variable]) -> Pattern:
    """Return what the types of an index tell.

    Parameters
    ----------
    ndim : int
        Of the array.
    index : sequence of Variable
        Slices, ``None``, and arrays of whole numbers or masks.
    """
    stepped: list[bool] = []
    consumed, widest = 0, 0
    for entry in index:
        dtype = getattr(entry.type, "dtype", None)
        stepped.append(dtype is None)
        if dtype is None:
            consumed += isinstance(entry.type, host.SliceType)
        else:
            consumed += entry.type.ndim if dtype == "bool" else 1
            widest = max(widest, 1 if dtype == "bool" else entry.type.ndim)
    total = sum(stepped) + max(ndim - consumed, 0)
    arrays = [i for i, strided in enumerate(stepped) if not strided]
    # Arrays that stand together have their axes where they stand, and others in front.
    together = bool(arrays) and not any(stepped[arrays[0] : arrays[-1]])
    before = arrays[0] if together else 0
    return Pattern(before, total - before, widest)


@dataclass(frozen=True)
class Places:
    """The elements that an index names.

    Parameters
    ----------
    lengths, steps : tuple of int
        Of the axes that are stepped through; the steps are in elements.
    start : int
        The element where they begin.
    places : numpy.ndarray
        What each place of the arrays adds, in elements, as a vector of int64.
    shape : tuple of int
        To which the arrays broadcast.
    pattern : Pattern
        Where the axes stand.
    """

    lengths: tuple[int, ...]
    steps: tuple[int, ...]
    start: int
    places: np.ndarray
    shape: tuple[int, ...]
    pattern: Pattern

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of what is named."""
        before = self.pattern.before
        return (*self.lengths[:before], *self.shape, *self.lengths[before:])


def find(pattern: Pattern, shape: Sequence[int], strides: Sequence[int], index: Sequence[Any]) -> Places:
    """Return the elements that an index names.

    Parameters
    ----------
    pattern : Pattern
        What the types of the index tell.
    shape, strides : sequence of int
        Of the array; the strides are in elements.
    index : sequence
        Slices, None, and NumPy arrays of whole numbers or masks.

    Raises
    ------
    IndexError
        As NumPy does.
    """
    lengths: list[int] = []
    steps: list[int] = []
    arrays: list[tuple[np.ndarray, int, int]] = []
    seen: list[int] = []  # the lengths that NumPy is to check against
    start = axis = 0

    def step_through(entry: slice) -> None:
        nonlocal start, axis
        if axis >= len(shape):
            raise IndexError(f"too many indices for array: array is {len(shape)}-dimensional")
        span = range(*slice(*[None if v is None else int(v) for v in _bounds(entry)]).indices(shape[axis]))
        lengths.append(len(span))
        steps.append(span.step * strides[axis])
        start += span.start * strides[axis] if len(span) else 0
        seen.append(min(len(span), 1))
        axis += 1

    for entry in index:
        if entry is None:
            lengths.append(1)
            steps.append(0)
        elif isinstance(entry, slice):
            step_through(entry)
        else:
            entry = np.asarray(entry)
            width = entry.ndim if entry.dtype == bool else 1
            if axis + width <= len(shape):
                arrays += _numbers(entry, shape[axis : axis + width], strides[axis : axis + width])
            seen.extend(shape[axis : axis + width])
            axis += width
    while axis < len(shape):
        step_through(slice(None))
    checked = _checked(seen, index)
    broadcast = checked[pattern.before : pattern.before + pattern.ndim]
    places = _sum(arrays, broadcast) if size_of(checked) else np.zeros(size_of(broadcast), np.int64)
    return Places(tuple(lengths), tuple(steps), start, places, broadcast, pattern)


def _bounds(entry: slice) -> tuple[Any, Any, Any]:
    return entry.start, entry.stop, entry.step


def _numbers(entry: np.ndarray, lengths: Sequence[int], steps: Sequence[int]) -> list[tuple[np.ndarray, int, int]]:
    """Return an array of an index as arrays of numbers, with the length and the step of the axis of each."""
    if entry.dtype != bool:
        return [(entry, lengths[0], steps[0])]
    if not entry.ndim:  # it adds an axis, and names none
        return [(np.zeros(int(entry), np.int64), 1, 0)]
    if entry.shape != tuple(lengths):
        return []  # an error, which NumPy will tell
    return list(zip(entry.nonzero(), lengths, steps, strict=True))


def _checked(lengths: Sequence[int], index: Sequence[Any]) -> tuple[int, ...]:
    """Return the shape of what an index names of a shape, each slice taken for the whole of its axis."""
    one_byte = np.broadcast_to(np.zeros((), np.int8), tuple(lengths))
    return one_byte[tuple(slice(None) if isinstance(entry, slice) else entry for entry in index)].shape


def _sum(arrays: Sequence[tuple[np.ndarray, int, int]], shape: tuple[int, ...]) -> np.ndarray:
    total = np.zeros(shape, np.int64)
    for numbers, length, step in arrays:
        numbers = numbers.astype(np.int64)
        total += np.where(numbers < 0, numbers + length, numbers) * step
    return total.ravel()

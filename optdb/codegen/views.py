"""Views of arrays with new shapes, strides and offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.layout import collapse, size_of, view
from optdb.runtime.arrays import Array, DeviceArray, c_strides
from optdb.runtime.sizes import as_int, part_of


def axis_last(x: Array, axis: int) -> Array:
    """Return a view of an array with one of its axes moved to the end."""
    order = [*(d for d in range(x.ndim) if d != axis), axis]
    return view(x, [x.shape[d] for d in order], [x.strides[d] for d in order])


def padded(x: Array, ndim: int) -> DeviceArray:
    """Return a view of an array with `ndim` axes; the added leading axes have length 1."""
    missing = ndim - x.ndim
    return view(x, (1,) * missing + tuple(x.shape), (x.dtype.itemsize,) * missing + tuple(x.strides))


def subtensor(x: Array, index: Sequence[Any]) -> DeviceArray:
    """Return the view selected by a basic index (integers and slices); raise IndexError if it is out of bounds."""
    shape, strides, offset = [], [], 0
    padded = [*index, *[slice(None)] * (x.ndim - len(index))]
    for axis, (entry, length, stride) in enumerate(zip(padded, x.shape, x.strides, strict=True)):
        if isinstance(entry, slice):
            start, count, step = part_of(length, entry)
            shape.append(count)
            strides.append(stride * step)
            # The start of an empty slice may be out of bounds.
            offset += stride * start if count else 0
            continue
        number = as_int(entry)
        if not -length <= number < length:
            raise IndexError(f"index {number} is out of bounds for axis {axis} with size {length}")
        offset += stride * (number % length)
    return view(x, shape, strides, offset)


def full_shape(old: Sequence[int], wanted: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return the requested shape, with a length of -1 inferred; raise ValueError if the sizes differ."""
    if len(wanted) != ndim:
        raise ValueError(f"a reshape to {ndim} dimensions got {len(wanted)} lengths: {tuple(wanted)}")
    size = size_of(old)
    known_size = size_of([length for length in wanted if length != -1])
    open_axes = [axis for axis, length in enumerate(wanted) if length == -1]
    shape = list(wanted)
    fits = min([0, *shape]) >= -1 and len(open_axes) <= 1
    if fits and open_axes:
        fits = known_size != 0 and size % known_size == 0
        shape[open_axes[0]] = size // known_size if fits else 0
    if not fits or size_of(shape) != size:
        raise ValueError(f"Cannot reshape input of shape {tuple(old)} to shape {tuple(wanted)}")
    return tuple(shape)


def strides_for(x: Array, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides, in bytes, of a view of `x` with another shape; None if a copy is needed."""
    item = x.dtype.itemsize
    if not x.size:
        return c_strides(shape, item)
    lengths, (steps,) = collapse(x.shape, [x.strides])
    strides: list[int] = []
    todo = list(zip(lengths, steps))
    room, step = todo.pop() if todo else (1, item)
    for length in reversed(shape):
        if room == 1 and length > 1:
            if not todo:
                return None
            room, step = todo.pop()
        if room % length:
            return None
        strides.append(step)
        step *= length
        room //= length
    return tuple(reversed(strides))


def diagonal(x: Array, offset: int, axis1: int, axis2: int) -> DeviceArray:
    """Return a view with the diagonals of two axes as its last axis; raise ValueError if the axes are invalid."""
    ndim = x.ndim
    rows, columns = axis1 + ndim * (axis1 < 0), axis2 + ndim * (axis2 < 0)
    if not (0 <= rows < ndim and 0 <= columns < ndim) or rows == columns:
        raise ValueError(f"axes {axis1} and {axis2} are not two axes of an array with {ndim} dimensions")
    down, right = max(-offset, 0), max(offset, 0)
    length = max(min(x.shape[rows] - down, x.shape[columns] - right), 0)
    other_axes = [axis for axis in range(ndim) if axis not in (rows, columns)]
    return view(
        x,
        [*[x.shape[axis] for axis in other_axes], length],
        [*[x.strides[axis] for axis in other_axes], x.strides[rows] + x.strides[columns]],
        down * x.strides[rows] + right * x.strides[columns],
    )


def broadcast_view(y: Array, shape: Sequence[int], op: Any) -> DeviceArray:
    """Return a view of `y` with the rank of `shape`; raise ValueError if `y` does not broadcast to `shape`."""
    missing = len(shape) - y.ndim
    lengths = tuple(y.shape)
    extra = [length for length in lengths[: max(-missing, 0)] if length != 1]
    trailing = lengths[max(-missing, 0) :]
    if extra or any(length not in (1, n) for length, n in zip(reversed(trailing), reversed(tuple(shape)))):
        raise ValueError(f"{op} cannot broadcast a value of shape {lengths} to a part of shape {tuple(shape)}")
    if missing < 0:
        return view(y, trailing, y.strides[-missing:])
    return padded(y, len(shape))

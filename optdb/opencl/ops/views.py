"""Ops that look at an array in another way, and copy nothing: strides and offsets change, or not even these.

Only a reshape may have to copy, where no strides give the new shape.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optdb.codegen.layout import c_strides, collapse, is_contiguous, size_of, view
from optdb.host import ops as host
from optdb.host.graph import Apply
from optdb.lifters.transfers import record_transfer
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, check_lengths
from optdb.opencl.ops.counterpart import Counterpart, View
from optdb.opencl.ops.elements import ElementKernels
from optdb.runtime.arrays import Array, DeviceArray, empty, to_host
from optdb.runtime.sizes import as_int, lengths_of, part_of


class OpenCLDimShuffle(View, host.DimShuffle):
    """Axes in another order, dropped, or added with length 1."""

    # The host's constructor reads its C code, and looks for it beside this module.
    c_func_file = str(Path(inspect.getfile(host.DimShuffle)).parent / host.DimShuffle.c_func_file)

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        (x,) = inputs
        check_lengths(self, node.inputs, inputs, [(0, axis) for axis in self.drop])
        shape = [1 if axis == "x" else x.shape[axis] for axis in self.new_order]
        strides = [x.dtype.itemsize if axis == "x" else x.strides[axis] for axis in self.new_order]
        outputs[0][0] = view(x, shape, strides)


class OpenCLSubtensor(View, host.Subtensor):
    """A part of an array, by whole numbers and slices."""

    device_inputs = slice(0, 1)

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        outputs[0][0] = subtensor(inputs[0], host.get_idx_list(inputs, self.idx_list))


class OpenCLAssert(View, host.Assert):
    """An array of the device, if conditions hold; these are on the host."""

    device_inputs = slice(0, 1)


class OpenCLPrint(View, host.Print):
    """An array of the device, printed as the host prints its arrays."""

    repeatable = False

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        (x,) = inputs
        outputs[0][0] = x
        value = to_host(x)
        record_transfer(self, value.nbytes)
        self.global_fn(self, value)


class _Reshaping(Counterpart, OpenCLKernelBase):
    """The base of ops that give an array another shape, which `_shape` returns."""

    device_inputs = slice(0, 1)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return copying(node.inputs[0].type).kernels()

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x = inputs[0]
        shape = self._shape(*inputs)
        strides = strides_for(x, shape)
        if strides is None:
            x = contiguous(x, node.inputs[0].type, kernels, context)
            strides = c_strides(shape, x.dtype.itemsize)
        outputs[0][0] = view(x, shape, strides)


class OpenCLReshape(_Reshaping, host.Reshape):
    """The same elements in another shape."""

    def _shape(self, x: Array, wanted: Any) -> tuple[int, ...]:
        return full_shape(x.shape, lengths_of(wanted), self.ndim)


class OpenCLFlatten(_Reshaping, host.Flatten):
    """The same elements with the last axes made one, so that there are `outdim` axes."""

    def __init__(self, outdim: int = 1) -> None:
        # Skip the host's constructor, which warns of its deprecation.
        self.outdim = int(outdim)

    def _shape(self, x: Array) -> tuple[int, ...]:
        leading = self.outdim - 1
        return (*x.shape[:leading], size_of(x.shape[leading:]))


def copying(array_type: Any, name: str = "copy") -> ElementKernels:
    """Return the kernels that copy arrays of a type."""
    return ElementKernels.copying(array_type.dtype, array_type.ndim, name)


def copied(
    x: Array, copying: ElementKernels, kernels: Kernels, context: Context, shape: Sequence[int] | None = None
) -> DeviceArray:
    """Return a copy of `x` in C order, broadcast to a shape if one is given."""
    shape = tuple(x.shape if shape is None else shape)
    result = empty(context, shape, x.dtype)
    copying.launch(kernels, context, shape, [x, result])
    return result


def contiguous(
    x: Array,
    array_type: Any,
    kernels: Kernels,
    context: Context,
    name: str = "copy",
    shape: Sequence[int] | None = None,
) -> DeviceArray:
    """Return `x` in C order, broadcast to a shape if one is given: itself, or a copy by the kernels of `copying`."""
    if is_contiguous(x) and (shape is None or tuple(x.shape) == tuple(shape)):
        return x
    return copied(x, copying(array_type, name), kernels, context, shape)


def overwritable(op: Any, x: Array, array_type: Any, kernels: Kernels, context: Context) -> Array:
    """Return what an op may change: `x` itself if it works in place, else a copy, by the kernels of `copying`."""
    return x if op.inplace else copied(x, copying(array_type), kernels, context)


def subtensor(x: Array, index: Sequence[Any]) -> DeviceArray:
    """Return a view of a part of `x`, which `index` names as NumPy does it, with whole numbers and slices.

    Raises
    ------
    IndexError
        If a number is out of the array.
    """
    shape, strides, offset = [], [], 0
    padded = [*index, *[slice(None)] * (x.ndim - len(index))]
    for axis, (entry, length, stride) in enumerate(zip(padded, x.shape, x.strides, strict=True)):
        if isinstance(entry, slice):
            start, count, step = part_of(length, entry)
            shape.append(count)
            strides.append(stride * step)
            # The start of an empty part may be outside of the array.
            offset += stride * start if count else 0
            continue
        place = as_int(entry)
        if not -length <= place < length:
            raise IndexError(f"index {place} is out of bounds for axis {axis} with size {length}")
        offset += stride * (place % length)
    return view(x, shape, strides, offset)


def full_shape(old: Sequence[int], wanted: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return the shape that is wanted, with its -1 worked out.

    Raises
    ------
    ValueError
        If the elements of `old` do not fit.
    """
    if len(wanted) != ndim:
        raise ValueError(f"a reshape to {ndim} dimensions was given {len(wanted)} lengths: {tuple(wanted)}")
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
    """Return the strides in bytes with which the elements of `x` have another shape, None if there are none."""
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

"""Operations on parts of arrays: joining, splitting, tiling, zero padding, changing slices and reshaping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.elements import Copying, ElementKernels, copied, copying, in_quads
from optdb.codegen.elementwise_programs import program_elements
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import is_contiguous, size_of, view
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.scalars.program import Scalar, ScalarProgram
from optdb.codegen.views import broadcast_view, full_shape, strides_for, subtensor
from optdb.runtime.arrays import Array, DeviceArray, c_strides, copy_bytes, empty, fill_zeros, may_share_memory
from optdb.runtime.sizes import as_int, lengths_of, part_of

#: A join of at least this many arrays uses buffer copies, if both the array and its part of the result are
#: C-contiguous. Otherwise, kernels copy the array.
MANY = 8


@dataclass(eq=False)
class JoinArrays(Copying):
    """Arrays joined along an axis; the inputs are the axis (a host integer) and arrays that match the spec `x`."""

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        axis, *arrays = inputs
        axis = _axis(self, int(axis), arrays[0].ndim)
        shape = list(arrays[0].shape)
        for array in arrays[1:]:
            if [n for i, n in enumerate(array.shape) if i != axis] != [n for i, n in enumerate(shape) if i != axis]:
                shapes = ", ".join(str(tuple(x.shape)) for x in arrays)
                raise ValueError(
                    f"{self} joins along axis {axis} arrays whose other lengths are equal; shapes are {shapes}"
                )
        shape[axis] = sum(array.shape[axis] for array in arrays)
        out = output_array(outputs[0], self.context, shape, self.x.dtype)
        start = 0
        for array in arrays:
            stop = start + array.shape[axis]
            slab = _slab(out, axis, start, stop)
            # In plans, buffer copies are independent commands. A few copies, however, are slower than kernels on a GPU.
            if len(arrays) >= MANY and is_contiguous(array) and is_contiguous(slab):
                copy_bytes(slab, array)
            else:
                self._copying.launch(kernels, self.context, array.shape, [array, slab])
            start = stop


@dataclass(eq=False)
class SplitArray(Copying):
    """An array cut into pieces along an axis.

    The inputs are the array and, on the host, the axis and the lengths of the pieces.
    """

    pieces: int

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, axis, lengths = inputs
        axis, lengths = _axis(self, int(axis), x.ndim), lengths_of(lengths)
        if len(lengths) != self.pieces or any(n < 0 for n in lengths) or sum(lengths) != x.shape[axis]:
            raise ValueError(
                f"{self} cannot cut {x.shape[axis]} elements along axis {axis} into {self.pieces} pieces: {lengths}"
            )
        start = 0
        for storage, length in zip(outputs, lengths, strict=True):
            piece = _slab(x, axis, start, start + length)
            out = output_array(storage, self.context, piece.shape, x.dtype)
            self._copying.launch(kernels, self.context, piece.shape, [piece, out])
            start += length


@dataclass(eq=False)
class TileArray(Copying):
    """An array repeated along each axis of the result.

    The inputs are the array and, on the host, the number of repeats for each axis; missing numbers are 1, and missing
    axes of the array are added in front.
    """

    ndim: int

    def __post_init__(self) -> None:
        self._copying = ElementKernels.copying(self.x.dtype, 2 * self.ndim)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, repeats = inputs
        times = [int(count) for count in np.atleast_1d(repeats)]
        if max(len(times), x.ndim) != self.ndim or min(times, default=0) < 0:
            raise ValueError(f"{self} cannot repeat an array of {x.ndim} dimensions {times} times")
        item, missing = x.dtype.itemsize, self.ndim - x.ndim
        times = [1] * (self.ndim - len(times)) + times
        lengths = [1] * missing + list(x.shape)
        steps = [item] * missing + list(x.strides)
        shape = [count * length for count, length in zip(times, lengths, strict=True)]
        out = output_array(outputs[0], self.context, shape, x.dtype)
        # Each axis of the result is split into two: the index of the repeat, and the index within the repeat.
        pairs = [n for pair in zip(times, lengths, strict=True) for n in pair]
        once = [n for length in lengths for n in (1, length)]
        source = view(x, once, [n for step in steps for n in (item, step)])
        target = view(out, pairs, c_strides(pairs, item))
        self._copying.launch(kernels, self.context, pairs, [source, target])


def _axis(operation: Operation, axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise IndexError(f"{operation}: there is no axis {axis} in an array of {ndim} dimensions")
    return axis % ndim


def _slab(x: Array, axis: int, start: int, stop: int) -> DeviceArray:
    return subtensor(x, [slice(None)] * axis + [slice(start, stop)])


@dataclass(eq=False)
class Pad(Copying):
    """An array of zeros with `x` in one part; if this part is the whole array, the result is `x` itself.

    The inputs are the array `x`, which is broadcast to the part, the lengths of the result, and the index of the part.
    """

    def __post_init__(self) -> None:
        self._copying = ElementKernels.copying(self.x.dtype, self.x.ndim, "set", context=self.context)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, lengths, index = inputs
        shape = tuple(map(as_int, lengths))
        if x.shape == shape and all(map(_is_whole, index, shape)):
            outputs[0][0] = x
            return
        # Do not overwrite the previous output: it may be the input of an earlier call.
        out = outputs[0][0] = empty(self.context, shape, x.dtype)
        part = subtensor(out, index)
        x = broadcast_view(x, part.shape, self)
        for zeros in _outside_views(out, index):
            fill_zeros(zeros)
        self._copying.launch(kernels, self.context, part.shape, [x, part])


def _is_whole(entry: Any, length: Any) -> bool:
    return isinstance(entry, slice) and part_of(length, entry) == (0, length, 1)


def _outside_views(array: Array, index: Sequence[Any]) -> list[Array]:
    """Return C-contiguous views that contain all elements outside of the indexed part, and maybe some of the part."""
    first = index[0] if index else slice(None)
    if not isinstance(first, slice) or not all(map(_is_whole, index[1:], array.shape[1:])):
        return [array]
    start, count, step = part_of(array.shape[0], first)
    if step != 1 or count < 1:
        return [array]
    bounds = slice(0, start), slice(start + count, array.shape[0])
    return [subtensor(array, [bound]) for bound in bounds]


@dataclass(eq=False)
class ChangeSlice(Operation):
    """An array in which a part is set or incremented.

    The inputs are the array, the values (broadcast to the part), and the index of the part (slices and integers).
    """

    #: Spec of the array; the values have the same dtype.
    x: ArraySpec
    #: Whether to set the part instead of incrementing it.
    setting: bool = False
    #: Whether to modify the array itself instead of a copy.
    inplace: bool = False

    def __post_init__(self) -> None:
        dtype, ndim = self.x.dtype, self.x.ndim
        self._copying = copying(self.x, context=self.context)
        if self.setting:
            self._changing = ElementKernels.copying(dtype, ndim, "set", context=self.context)
        else:
            added = ScalarProgram.of(Scalar("Add", dtype), [dtype, dtype])
            self._changing = program_elements(added, [False, False], ndim, "inc", in_quads(self.context))

    def kernels(self) -> list[Kernel]:
        return [*self._copying.kernels(), *self._changing.kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, y, index = inputs
        out = outputs[0][0] = x if self.inplace else copied(x, self._copying, kernels, self.context)
        part = subtensor(out, index)
        y = broadcast_view(y, part.shape, self)
        if self.inplace and may_share_memory(y, part):
            y = copied(y, self._copying, kernels, self.context)
        arrays = [y, part] if self.setting else [part, y, part]
        self._changing.launch(kernels, self.context, part.shape, arrays)


@dataclass(eq=False)
class Reshape(Copying):
    """An array with a new shape; the inputs are the array and a host vector of lengths, one of which may be -1."""

    ndim: int

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, wanted = inputs
        self._view(x, full_shape(x.shape, lengths_of(wanted), self.ndim), outputs, kernels)

    def _view(self, x: Array, shape: Sequence[int], outputs: Outputs, kernels: Kernels) -> None:
        strides = strides_for(x, shape)
        if strides is None:
            x = copied(x, self._copying, kernels, self.context)
            strides = c_strides(shape, x.dtype.itemsize)
        outputs[0][0] = view(x, shape, strides)


class Flatten(Reshape):
    """An array with its last axes merged into one, so that `ndim` axes remain."""

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        (x,) = inputs
        leading = self.ndim - 1
        self._view(x, (*x.shape[:leading], size_of(x.shape[leading:])), outputs, kernels)

"""Operations that join, split and tile arrays along their axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.elements import Copying, ElementKernels
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import c_strides, is_contiguous, view
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.views import subtensor
from optdb.runtime.arrays import Array, DeviceArray, copy_bytes
from optdb.runtime.sizes import lengths_of

#: The fewest joined arrays that are copied with buffer copies, where source and destination are C-contiguous.
MANY = 8


@dataclass(eq=False)
class JoinArrays(Copying):
    """The concatenation of arrays of one dtype along an axis.

    The inputs are the axis, a host integer, and the arrays, of the dtype and rank of `x`.
    """

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        axis, *arrays = inputs
        axis = _axis(self, int(axis), arrays[0].ndim)
        shape = list(arrays[0].shape)
        for array in arrays[1:]:
            if [n for i, n in enumerate(array.shape) if i != axis] != [n for i, n in enumerate(shape) if i != axis]:
                shapes = ", ".join(str(tuple(x.shape)) for x in arrays)
                raise ValueError(f"{self} joins along axis {axis} what is alike along the others; shapes are {shapes}")
        shape[axis] = sum(array.shape[axis] for array in arrays)
        out = output_array(outputs[0], self.context, shape, self.x.dtype)
        start = 0
        for array in arrays:
            stop = start + array.shape[axis]
            slab = _slab(out, axis, start, stop)
            # Plans treat buffer copies as independent commands. On a GPU, a few of them are slower than kernels.
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

    #: The number of pieces.
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
class TileArray(Operation):
    """An array repeated along each axis of the result.

    The inputs are the array and, on the host, the numbers of repeats, which may be fewer or more than the axes.
    """

    #: Spec of the array.
    x: ArraySpec
    #: Number of axes of the result.
    ndim: int

    def __post_init__(self) -> None:
        self._copying = ElementKernels.copying(self.x.dtype, 2 * self.ndim)

    def kernels(self) -> list[Kernel]:
        return self._copying.kernels()

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
        # Each axis of the result becomes two: the index of the copy, and the index within it.
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

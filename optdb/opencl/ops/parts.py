"""Ops that join, repeat and split arrays, and change parts of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.elements import ElementKernels, copying
from optdb.codegen.indexing.slices import ChangeSlice
from optdb.codegen.layout import c_strides, view
from optdb.codegen.operation import Operation
from optdb.codegen.views import subtensor
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.shell import Shell, once_per_node, spec_of
from optdb.runtime.arrays import Array, DeviceArray
from optdb.runtime.sizes import lengths_of


class OpenCLJoin(Counterpart, OpenCLKernelBase, host.Join):
    """The concatenation of arrays along an axis."""

    device_inputs = slice(1, None)
    common_dtype = "upcast"

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return copying(node.outputs[0].type).kernels()

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        axis, *arrays = inputs
        axis = _axis(int(axis), arrays[0].ndim, self)
        shape = list(arrays[0].shape)
        for array in arrays[1:]:
            if [n for i, n in enumerate(array.shape) if i != axis] != [n for i, n in enumerate(shape) if i != axis]:
                shapes = ", ".join(str(tuple(x.shape)) for x in arrays)
                raise ValueError(f"{self} joins along axis {axis} what is alike along the others; shapes are {shapes}")
        shape[axis] = sum(array.shape[axis] for array in arrays)
        out = output_array(outputs[0], context, shape, node.outputs[0].type.dtype)
        copies = copying(node.outputs[0].type)
        start = 0
        for array in arrays:
            stop = start + array.shape[axis]
            copies.launch(kernels, context, array.shape, [array, _slab(out, axis, start, stop)])
            start = stop


class OpenCLSplit(Counterpart, OpenCLKernelBase, host.Split):
    """An array cut into pieces along an axis."""

    device_inputs = slice(0, 1)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return copying(node.inputs[0].type).kernels()

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, axis, splits = inputs
        axis = _axis(int(axis), x.ndim, self)
        splits = lengths_of(splits)
        if len(splits) != self.len_splits or any(n < 0 for n in splits) or sum(splits) != x.shape[axis]:
            raise ValueError(
                f"{self} cannot cut {x.shape[axis]} elements along axis {axis} into {self.len_splits} pieces: {splits}"
            )
        copies = copying(node.inputs[0].type)
        start = 0
        for storage, length in zip(outputs, splits, strict=True):
            piece = _slab(x, axis, start, start + length)
            out = output_array(storage, context, piece.shape, x.dtype)
            copies.launch(kernels, context, piece.shape, [piece, out])
            start += length


class OpenCLTile(Counterpart, OpenCLKernelBase, host.Tile):
    """An array repeated along each axis of the result; the host gives the numbers of repeats."""

    device_inputs = slice(0, 1)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return self._elements(node).kernels()

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, repeats = inputs
        times = [int(count) for count in np.atleast_1d(repeats)]
        if max(len(times), x.ndim) != self.ndim or min(times, default=0) < 0:
            raise ValueError(f"{self} cannot repeat an array of {x.ndim} dimensions {times} times")
        item, missing = x.dtype.itemsize, self.ndim - x.ndim
        times = [1] * (self.ndim - len(times)) + times
        lengths = [1] * missing + list(x.shape)
        steps = [item] * missing + list(x.strides)
        shape = [count * length for count, length in zip(times, lengths, strict=True)]
        out = output_array(outputs[0], context, shape, x.dtype)
        # Two axes walk each axis of the result: the copy, and the place in it.
        pairs = [n for pair in zip(times, lengths, strict=True) for n in pair]
        once = [n for length in lengths for n in (1, length)]
        source = view(x, once, [n for step in steps for n in (item, step)])
        target = view(out, pairs, c_strides(pairs, item))
        self._elements(node).launch(kernels, context, pairs, [source, target])

    @once_per_node
    def _elements(self, node: Apply) -> ElementKernels:
        return ElementKernels.copying(node.inputs[0].type.dtype, 2 * self.ndim)


class OpenCLIncSubtensor(Counterpart, Shell, host.IncSubtensor):
    """An array of which a part is set to, or incremented by, another array."""

    device_inputs = slice(0, 2)
    common_dtype = 0
    parameters = ("idx_list", "inplace", "set_instead_of_inc", "destroyhandler_tolerate_aliased")

    def operation(self, node: Apply) -> Operation:
        return ChangeSlice(self.get_context(node), spec_of(node.inputs[0]), self.set_instead_of_inc, self.inplace)

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, y, *index = inputs
        entries = host.get_idx_list([x, *index], self.idx_list)
        super().run(node, [x, y, entries], outputs, kernels, context)


def _axis(axis: int, ndim: int, op: Any) -> int:
    if not -ndim <= axis < ndim:
        raise IndexError(f"{op}: there is no axis {axis} in an array of {ndim} dimensions")
    return axis % ndim


def _slab(x: Array, axis: int, start: int, stop: int) -> DeviceArray:
    return subtensor(x, [slice(None)] * axis + [slice(start, stop)])

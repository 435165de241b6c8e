"""Ops that look at an array in another way, and copy nothing: strides and offsets change, or not even these.

Only a reshape may have to copy, where no strides give the new shape.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optdb.codegen.elements import contiguous, copying
from optdb.codegen.layout import c_strides, size_of, view
from optdb.codegen.views import full_shape, strides_for, subtensor
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply
from optdb.lifters.transfers import record_transfer
from optdb.opencl.kernel_ops import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, check_lengths
from optdb.opencl.ops.counterpart import Counterpart, View
from optdb.runtime.arrays import Array, to_host
from optdb.runtime.sizes import lengths_of


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

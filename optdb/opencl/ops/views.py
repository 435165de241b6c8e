"""View ops, which change at most the shape, strides and offset of an array.

Of all view ops, only a reshape may have to copy: it copies if strides cannot express the new shape.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optdb.codegen.layout import view
from optdb.codegen.parts import Flatten, Reshape
from optdb.codegen.views import subtensor
from optdb.device.expressions import transposed
from optdb.device.tensors import Tensor
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply
from optdb.lifters.transfers import record_transfer
from optdb.opencl.kernel_ops import check_lengths
from optdb.opencl.ops.counterpart_base import CounterpartBase, View
from optdb.opencl.ops.shell import Shell
from optdb.runtime.arrays import to_host


class OpenCLDimShuffle(View, host.DimShuffle):
    """A view with axes permuted, dropped, or added with length 1."""

    # The host op's constructor reads its C code from this path, which would otherwise be relative to this module.
    c_func_file = str(Path(inspect.getfile(host.DimShuffle)).parent / host.DimShuffle.c_func_file)

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        (x,) = inputs
        check_lengths(self, node.inputs, inputs, [(0, axis) for axis in self.drop])
        shape = [1 if axis == "x" else x.shape[axis] for axis in self.new_order]
        strides = [x.dtype.itemsize if axis == "x" else x.strides[axis] for axis in self.new_order]
        outputs[0][0] = view(x, shape, strides)

    def describe(self, node: Apply, inputs: Sequence[Tensor]) -> list[Tensor]:
        (x,) = inputs
        check_lengths(self, node.inputs, inputs, [(0, axis) for axis in self.drop])
        order = [axis if isinstance(axis, int) else None for axis in self.new_order]
        return [transposed(x, order)]


def is_transpose(node: Apply | None) -> bool:
    """Tell whether a node transposes a matrix."""
    return node is not None and type(node.op) is OpenCLDimShuffle and tuple(node.op.new_order) == (1, 0)


class OpenCLSubtensor(View, host.Subtensor):
    """A part of an array, selected by integers and slices."""

    device_inputs = slice(0, 1)

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        outputs[0][0] = subtensor(inputs[0], host.get_idx_list(inputs, self.idx_list))


class OpenCLAssert(View, host.Assert):
    """Returns a device array if all conditions hold; the conditions stay on the host."""

    device_inputs = slice(0, 1)


class OpenCLPrint(View, host.Print):
    """Prints a device array like a host array."""

    repeatable = False

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        (x,) = inputs
        outputs[0][0] = x
        value = to_host(x)
        record_transfer(self, value.nbytes)
        self.global_fn(self, value)


class OpenCLReshape(CounterpartBase, Shell, host.Reshape):
    """An array with the same elements in another shape."""

    device_inputs = slice(0, 1)
    computed_by = Reshape
    settings = ("ndim",)


class OpenCLFlatten(CounterpartBase, Shell, host.Flatten):
    """An array with the last axes merged so that `outdim` axes remain."""

    device_inputs = slice(0, 1)
    computed_by = Flatten
    settings = ("outdim",)

    def __init__(self, outdim: int = 1) -> None:
        # Skip the host op's constructor, which warns that the op is deprecated.
        self.outdim = int(outdim)

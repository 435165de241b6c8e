"""Ops that make arrays: filled, empty, counting, triangular.

Sizes come from the host. No input has a context, so the ops hold its name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.elements import ElementKernels
from optdb.codegen.layout import view
from optdb.codegen.scalars.types import unsigned
from optdb.codegen.source import ROUND_EACH_STEP, typed, work_dtype, write_w
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply
from optdb.opencl.kernels import (
    Context,
    Kernel,
    Kernels,
    OpenCLKernelBase,
    Outputs,
    check_lengths,
    ctype,
    output_array,
)
from optdb.opencl.ops.counterpart import Performed
from optdb.opencl.ops.shell import once_per_node
from optdb.opencl.transfers import as_opencl_variable
from optdb.opencl.type import OpenCLArrayType
from optdb.runtime.sizes import as_int


class OpenCLAlloc(OpenCLKernelBase, host.Alloc):
    """An array of some shape, filled with a value that broadcasts to it; in the default context unless told."""

    __props__ = ("context_name",)
    #: `run` checks that of the value: the shape is made of numbers of the host.
    checks_lengths = True

    def __init__(self, context_name: str | None = None) -> None:
        self.context_name = context_name

    def make_node(self, value: Any, *shape: Any) -> Apply:
        """Return the node for a value and the lengths of the axes."""
        value = as_opencl_variable(value, self.context_name)
        like = host.Alloc.make_node(self, value.type.host_type(), *shape)
        out = OpenCLArrayType(value.type.dtype, like.outputs[0].type.broadcastable, self.context_name)()
        return Apply(self, [value, *like.inputs[1:]], [out])

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return self._elements(node).kernels()

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        value, *lengths = inputs
        check_lengths(self, node.inputs[:1], [value], empty=True)
        shape = tuple(map(as_int, lengths))
        if any(length < 0 for length in shape):
            raise ValueError(f"{self} cannot make an array with a negative length: {shape}")
        missing = len(shape) - value.ndim
        if any(length not in (1, target) for length, target in zip(value.shape, shape[missing:], strict=True)):
            raise ValueError(f"could not broadcast a value of shape {value.shape} to shape {shape[missing:]}")
        out = output_array(outputs[0], context, shape, value.dtype)
        item = value.dtype.itemsize
        value = view(value, (1,) * missing + value.shape, (item,) * missing + value.strides)
        self._elements(node).launch(kernels, context, shape, [value, out])

    @once_per_node
    def _elements(self, node: Apply) -> ElementKernels:
        value, out = node.inputs[0].type, node.outputs[0].type
        return ElementKernels.copying(out.dtype, out.ndim, single=all(value.broadcastable))


class _Maker:
    """What makes an array from numbers of the host, in the default context and the host's dtype unless told."""

    __props__ = ("dtype", "context_name")

    def __init__(self, dtype: str | None = None, context_name: str | None = None) -> None:
        super().__init__(dtype)
        self.context_name = context_name

    def make_node(self, *numbers: Any) -> Apply:
        """Return the node for numbers such as the host's op takes."""
        like = super().make_node(*numbers)
        out = OpenCLArrayType(self.dtype, like.outputs[0].type.broadcastable, self.context_name)()
        vars(out.tag).update(vars(like.outputs[0].tag))
        return Apply(self, like.inputs, [out])


class OpenCLAllocEmpty(Performed, _Maker, host.AllocEmpty):
    """An array with undefined contents."""

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, params: Any = None) -> None:
        context = node.outputs[0].type.context
        output_array(outputs[0], context, [as_int(length) for length in inputs], self.dtype)

    def debug_perform(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, params: Any = None) -> None:
        """Compute for a debugger, as `perform` does: the device fills nothing in."""
        self.perform(node, inputs, outputs)


_ARANGE = """
KERNEL void arange(ga_size n, W start, W step, ARRAY T *a) {
    for (ga_size i = get_global_id(0); i < n; i += get_global_size(0))
        a[i] = VALUE;
}
"""


class OpenCLARange(_Maker, OpenCLKernelBase, host.ARange):
    """Numbers at equal distances."""

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        value = f"{write_w(self.dtype)}(start + i * step)"
        if np.dtype(self.dtype).kind in "iu":
            wide = unsigned(self.dtype)
            value = f"({ctype(self.dtype)})(({wide})start + ({wide})i * ({wide})step)"
        return [Kernel(typed(ROUND_EACH_STEP + _ARANGE, self.dtype, VALUE=value))]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        start, stop, step = [x.item() for x in inputs]
        n = max(0, math.ceil((stop - start) / step))
        out = output_array(outputs[0], context, (n,), self.dtype)
        kind = np.dtype(work_dtype(self.dtype)).type
        # NumPy writes two numbers, and goes on with their difference.
        first = np.array([start]).astype(kind)
        with np.errstate(over="ignore"):
            distance = np.array([start + step]).astype(kind) - first
        kernels["arange"].scall(n, n, first[0], distance[0], out)


_TRI = """
KERNEL void tri(ga_size n, ga_size columns, ga_ssize k, ARRAY T *a) {
    for (ga_size i = get_global_id(0); i < n; i += get_global_size(0))
        a[i] = STORE((ga_ssize)(i % columns) <= (ga_ssize)(i / columns) + k);
}
"""


class OpenCLTri(_Maker, OpenCLKernelBase, host.Tri):
    """Ones at and below a diagonal."""

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return [Kernel(typed(_TRI, self.dtype))]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        rows, columns, k = [int(x) for x in inputs]
        out = output_array(outputs[0], context, (rows, columns), self.dtype)
        kernels["tri"].scall(out.size, out.size, columns, k, out)

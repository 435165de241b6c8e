"""Softmax and its relatives: each row of a matrix becomes weights that add up to 1.

A work item goes over its rows three times: for the largest element, for the sum, and to
write. The largest is taken off first, so that no power of e is too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.fp16 import load_w, type_words
from optdb.codegen.layout import launch_striding, steps_of
from optdb.host import ops as host
from optdb.host.graph import Apply, Variable
from optdb.opencl.kernels import (
    Context,
    Kernel,
    Kernels,
    OpenCLKernelBase,
    Outputs,
    ctype,
    output_array,
)
from optdb.opencl.ops.counterpart import Counterpart, on_one_device
from optdb.opencl.ops.views import OpenCLDimShuffle

_ROWS = """
OUTLINED_KERNEL void rows(ga_size rows, ga_size columns, {arrays}, ARRAY {stored} *z)
{{
for (ga_size i = get_global_id(0); i < rows; i += get_global_size(0)) {{
{body}
}}
}}
"""

_SOFTMAX = """
    {work} largest = {first};
    for (ga_size j = 1; j < columns; ++j) {{
        const {work} x = {x};
        largest = x > largest || isnan(x) ? x : largest;
    }}
    {work} sum = 0;
    for (ga_size j = 0; j < columns; ++j)
        sum += exp({x} - largest);
    {before}
    for (ga_size j = 0; j < columns; ++j)
        z[i * columns + j] = {store}({result});
"""

_GRADIENT = """
    {work} sum = 0;
    for (ga_size j = 0; j < columns; ++j)
        sum += {dy} * {sm};
    for (ga_size j = 0; j < columns; ++j)
        z[i * columns + j] = {store}({dy} * {sm} - sum * {sm});
"""


class _OfRows(Counterpart, OpenCLKernelBase):
    """What the ops of this module share: matrices, row by row, in C order at the end."""

    common_dtype = 0

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node for matrices, which get the dtype of the result; a vector is a row."""
        return super().make_node(*map(_as_rows, on_one_device(inputs)))

    def body(self, dtype: str) -> str:
        """Return what is done to row `i`, in OpenCL C."""
        raise NotImplementedError

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        dtype = node.outputs[0].type.dtype
        arrays = []
        for i, x in enumerate(node.inputs):
            arrays += [f"ARRAY {ctype(dtype)} *x{i}", *[f"ga_ssize x{i}_{axis}" for axis in range(x.type.ndim)]]
        return [Kernel(_ROWS.format(stored=ctype(dtype), arrays=", ".join(arrays), body=self.body(dtype)))]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        shape = inputs[-1].shape if inputs[-1].ndim == 2 else inputs[0].shape
        if any(tuple(x.shape) != tuple(shape)[-x.ndim :] for x in inputs):
            raise ValueError(f"{self} was given arrays of shapes {' and '.join(str(tuple(x.shape)) for x in inputs)}")
        out = output_array(outputs[0], context, shape, node.outputs[0].type.dtype)
        if not out.size:
            return
        args = [arg for x in inputs for arg in (x, *steps_of(x))]
        launch_striding(kernels["rows"], context, *shape, *args, out)


def _as_rows(x: Variable) -> Variable:
    return OpenCLDimShuffle(x.type.broadcastable, ("x", 0))(x) if x.type.ndim == 1 else x


def _element(i: int, dtype: str, ndim: int = 2) -> str:
    """Return element (i, j) of an input, in OpenCL C."""
    place = f"(ga_ssize)j * x{i}_0" if ndim == 1 else f"(ga_ssize)i * x{i}_0 + (ga_ssize)j * x{i}_1"
    return f"{load_w(dtype)}(x{i}[{place}])"


def _softmax_body(dtype: str, x: str, before: str = "", result: str = "") -> str:
    parts = {"x": x, "first": x.replace("(ga_ssize)j", "0"), "before": before}
    return _SOFTMAX.format(**type_words(dtype), **parts, result=result or f"exp({x} - largest) / sum")


class OpenCLSoftmax(_OfRows, host.Softmax):
    """Powers of e, in each row divided by their sum."""

    def body(self, dtype: str) -> str:
        return _softmax_body(dtype, _element(0, dtype))


class OpenCLLogSoftmax(_OfRows, host.LogSoftmax):
    """The logarithm of a softmax, without the detour."""

    def body(self, dtype: str) -> str:
        x = _element(0, dtype)
        return _softmax_body(dtype, x, "sum = log(sum);", f"{x} - largest - sum")


class OpenCLSoftmaxWithBias(_OfRows, host.SoftmaxWithBias):
    """The softmax of the sum of a matrix and a vector."""

    make_node = Counterpart.make_node

    def body(self, dtype: str) -> str:
        return _softmax_body(dtype, f"({_element(0, dtype)} + {_element(1, dtype, ndim=1)})")


class OpenCLSoftmaxGrad(_OfRows, host.SoftmaxGrad):
    """The gradient of a softmax, from that of its result and the result."""

    common_dtype = 1

    def body(self, dtype: str) -> str:
        return _GRADIENT.format(**type_words(dtype), dy=_element(0, dtype), sm=_element(1, dtype))

"""Softmax and its relatives: each row of a matrix becomes weights that add up to 1.

A work item goes over its rows three times: for the largest element, for the sum, and to
write. The largest is taken off first, so that no power of e is too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optdb.codegen.fp16 import load_w, work_dtype, write_w
from optdb.codegen.layout import launch_striding
from optdb.host import ops as host
from optdb.host.graph import Apply, Variable
from optdb.opencl.contexts import infer_context_name
from optdb.opencl.kernels import (
    ARRAY,
    SIZE,
    SSIZE,
    Kernel,
    Kernels,
    OpenCLKernelBase,
    Outputs,
    ctype,
    output_array,
)
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.elemwise import cast
from optdb.opencl.ops.views import OpenCLDimShuffle
from optdb.opencl.transfers import as_opencl_variable
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.runtime.context import Context


_ROWS = """
OUTLINED_KERNEL void {name}(ga_size rows, ga_size columns, {params}, GLOBAL_MEM {stored} *z, ga_size z_off)
{{
{pointers}
z = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)z + z_off);
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

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node for matrices, which get the dtype of the result; a vector is a row."""
        context_name = infer_context_name(*[x for x in inputs if isinstance(x, Variable)])
        moved = [as_opencl_variable(x, context_name) for x in inputs]
        return super().make_node(*[cast(x, self._dtype(moved)) for x in map(self._as_rows, moved)])

    @staticmethod
    def _dtype(inputs: Sequence[Variable]) -> str:
        return inputs[0].type.dtype

    @staticmethod
    def _as_rows(x: Variable) -> Variable:
        return OpenCLDimShuffle(x.type.broadcastable, ("x", 0))(x) if x.type.ndim == 1 else x

    def body(self, dtype: str) -> str:
        """Return what is done to row `i`, in OpenCL C."""
        raise NotImplementedError

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        dtype = node.outputs[0].type.dtype
        stored = ctype(dtype)
        params, pointers, kinds = [], [], []
        for i, x in enumerate(node.inputs):
            steps = [f"ga_ssize x{i}_{axis}" for axis in range(x.type.ndim)]
            params += [f"GLOBAL_MEM {stored} *x{i}, ga_size x{i}_off", *steps]
            pointers.append(f"x{i} = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)x{i} + x{i}_off);")
            kinds += [ARRAY, *[SSIZE] * x.type.ndim]
        code = _ROWS.format(
            name="rows",
            stored=stored,
            params=", ".join(params),
            pointers="\n".join(pointers),
            body=self.body(dtype),
        )
        return [Kernel(code, "rows", [SIZE, SIZE, *kinds, ARRAY], Kernel.get_flags(dtype))]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        shape = inputs[-1].shape if inputs[-1].ndim == 2 else inputs[0].shape
        _check_shapes(self, inputs, shape)
        out = output_array(outputs[0], context, shape, node.outputs[0].type.dtype)
        if not out.size:
            return
        args = [arg for x in inputs for arg in (x, *[step // x.dtype.itemsize for step in x.strides])]
        launch_striding(kernels["rows"], context, shape[0], 8, *shape, *args, out)


def _check_shapes(op: Any, inputs: Sequence[Array], shape: Sequence[int]) -> None:
    for x in inputs:
        if tuple(x.shape) != tuple(shape)[-x.ndim :]:
            shapes = " and ".join(str(tuple(x.shape)) for x in inputs)
            raise ValueError(f"{op} was given arrays of shapes {shapes}")


def _element(i: int, dtype: str, ndim: int = 2) -> str:
    """Return element (i, j) of an input, in OpenCL C."""
    place = f"(ga_ssize)j * x{i}_0" if ndim == 1 else f"(ga_ssize)i * x{i}_0 + (ga_ssize)j * x{i}_1"
    return f"{load_w(dtype)}(x{i}[{place}])"


def _softmax_body(dtype: str, x: str, before: str = "", result: str = "") -> str:
    work = ctype(work_dtype(dtype))
    return _SOFTMAX.format(
        work=work,
        x=x,
        first=x.replace("(ga_ssize)j", "0"),
        store=write_w(dtype),
        before=before,
        result=result or f"exp({x} - largest) / sum",
    )


class OpenCLSoftmax(_OfRows, host.Softmax):
    """Powers of e, in each row divided by their sum."""

    host = host.Softmax

    def body(self, dtype: str) -> str:
        return _softmax_body(dtype, _element(0, dtype))


class OpenCLLogSoftmax(_OfRows, host.LogSoftmax):
    """The logarithm of a softmax, without the detour."""

    host = host.LogSoftmax

    def body(self, dtype: str) -> str:
        x = _element(0, dtype)
        return _softmax_body(dtype, x, "sum = log(sum);", f"{x} - largest - sum")


class OpenCLSoftmaxWithBias(_OfRows, host.SoftmaxWithBias):
    """The softmax of the sum of a matrix and a vector."""

    host = host.SoftmaxWithBias

    @staticmethod
    def _as_rows(x: Variable) -> Variable:
        return x

    def body(self, dtype: str) -> str:
        return _softmax_body(dtype, f"({_element(0, dtype)} + {_element(1, dtype, ndim=1)})")


class OpenCLSoftmaxGrad(_OfRows, host.SoftmaxGrad):
    """The gradient of a softmax, from that of its result and the result."""

    host = host.SoftmaxGrad

    @staticmethod
    def _dtype(inputs: Sequence[Variable]) -> str:
        return inputs[1].type.dtype

    def body(self, dtype: str) -> str:
        work = ctype(work_dtype(dtype))
        return _GRADIENT.format(work=work, dy=_element(0, dtype), sm=_element(1, dtype), store=write_w(dtype))

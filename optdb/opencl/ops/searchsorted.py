"""Where values would be put into a sorted vector, so that it stays sorted.

Each value is looked for by bisection. Values are compared in the dtype that NumPy promotes both arrays to, and NaN is
the largest, as in the order that `sort` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.fp16 import load_w
from optdb.codegen.layout import launch_chunks
from optdb.codegen.scalars.types import c_type
from optdb.host.graph import Apply
from optdb.host.sorting import SearchsortedOp
from optdb.opencl.kernels import ARRAY, SIZE, SSIZE, Kernel, Kernels, OpenCLKernelBase, Outputs, ctype, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.views import contiguous, copying

if TYPE_CHECKING:
    from optdb.runtime.context import Context

__all__ = ["OpenCLSearchsortedOp", "compared_in"]

_CODE = """
static inline bool less({work} a, {work} b) {{ return {less}; }}
OUTLINED_KERNEL void searchsorted(ga_size count, ga_size chunk, ga_size length,
    GLOBAL_MEM {sorted} *x, ga_size x_off, ga_ssize step,
    GLOBAL_MEM {wanted} *v, ga_size v_off, GLOBAL_MEM ga_long *z, ga_size z_off)
{{
x = (GLOBAL_MEM {sorted} *)((GLOBAL_MEM char *)x + x_off);
v = (GLOBAL_MEM {wanted} *)((GLOBAL_MEM char *)v + v_off);
z = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)z + z_off);
const ga_size stop = min((get_global_id(0) + 1) * chunk, count);
for (ga_size i = get_global_id(0) * chunk; i < stop; ++i) {{
    const {work} value = ({work}){load_wanted}(v[i]);
    ga_size low = 0, high = length;
    while (low < high) {{
        const ga_size middle = low + (high - low) / 2;
        const {work} here = ({work}){load_sorted}(x[(ga_ssize)middle * step]);
        if ({is_before})
            low = middle + 1;
        else
            high = middle;
    }}
    z[i] = low;
}}
}}
"""
_IS_BEFORE = {"left": "less(here, value)", "right": "!less(value, here)"}


class OpenCLSearchsortedOp(Counterpart, OpenCLKernelBase, SearchsortedOp):
    """The place of each value in a sorted vector: before its equals ('left'), or behind them ('right')."""

    host = SearchsortedOp

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x, v = (var.type for var in node.inputs)
        work = compared_in(x.dtype, v.dtype)
        code = _CODE.format(
            work=c_type(work),
            sorted=ctype(x.dtype),
            wanted=ctype(v.dtype),
            load_sorted=load_w(x.dtype),
            load_wanted=load_w(v.dtype),
            less="a < b || (b != b && a == a)" if work.startswith("float") else "a < b",
            is_before=_IS_BEFORE[self.side],
        )
        kinds = [SIZE, SIZE, SIZE, ARRAY, SSIZE, ARRAY, ARRAY]
        return [Kernel(code, "searchsorted", kinds, Kernel.get_flags(x.dtype, v.dtype, work)), *copying(v).kernels()]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, v = inputs
        out = output_array(outputs[0], context, v.shape, "int64")
        if not out.size:
            return
        v = contiguous(v, node.inputs[1].type, kernels, context)
        step = x.strides[0] // x.dtype.itemsize
        launch_chunks(kernels["searchsorted"], context, out.size, x.shape[0], x, step, v, out)


def compared_in(sorted_dtype: str, wanted_dtype: str) -> str:
    """Return the dtype in which the elements of two arrays are compared, as NumPy does it."""
    return np.promote_types(sorted_dtype, wanted_dtype).name

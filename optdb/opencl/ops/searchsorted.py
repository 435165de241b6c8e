"""Where values would be put into a sorted vector, so that it stays sorted.

Each value is looked for by bisection. Values are compared in the dtype that NumPy promotes both arrays to, and NaN is
the largest, as in the order that `sort` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.layout import launch_chunks, steps_of
from optdb.codegen.source import functions, load_w, typed, work_dtype
from optdb.host.graph import Apply
from optdb.host.sorting import SearchsortedOp
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, ctype, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.views import contiguous, copying

__all__ = ["OpenCLSearchsortedOp", "compared_in"]

_IS_BEFORE = {"left": "less(here, value)", "right": "!less(value, here)"}


class OpenCLSearchsortedOp(Counterpart, OpenCLKernelBase, SearchsortedOp):
    """The place of each value in a sorted vector: before its equals ('left'), or behind them ('right')."""

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x, v = (var.type for var in node.inputs)
        work = compared_in(x.dtype, v.dtype)
        words = {
            "V": ctype(v.dtype),
            "LOAD_V": load_w(v.dtype),
            "C": ctype(work_dtype(work)),
            "LESS": "a < b || (b != b && a == a)" if work.startswith("float") else "a < b",
            "IS_BEFORE": _IS_BEFORE[self.side],
        }
        code = functions("axes.cl")
        return [Kernel(typed(code["less"] + code["searchsorted"], x.dtype, **words)), *copying(v).kernels()]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, v = inputs
        out = output_array(outputs[0], context, v.shape, "int64")
        if not out.size:
            return
        v = contiguous(v, node.inputs[1].type, kernels, context)
        launch_chunks(kernels["searchsorted"], context, out.size, x.shape[0], x, *steps_of(x), v, out)


def compared_in(sorted_dtype: str, wanted_dtype: str) -> str:
    """Return the dtype in which the elements of two arrays are compared, as NumPy does it."""
    return np.promote_types(sorted_dtype, wanted_dtype).name

"""Matrices with ones on a diagonal.

Sizes and the diagonal come from the host, as scalars. The device fills the matrix with zeros; then one work item writes
each one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from optdb.codegen.source import write_w
from optdb.host.api.config import config
from optdb.host.api.graph import Apply, Variable
from optdb.host.api.ops import grad_undefined
from optdb.host.api.variables import as_tensor_variable
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, ctype, output_zeros
from optdb.opencl.type import OpenCLArrayType

_CODE = """
KERNEL void eye(ARRAY {ctype} *a, ga_size first, ga_size step, ga_size count) {{
    ga_size i = GID_0 * LDIM_0 + LID_0;
    if (i < count)
        a[first + i * step] = {one};
}}
"""


class OpenCLEye(OpenCLKernelBase):
    """``numpy.eye(n, m, k)`` on a device.

    Parameters
    ----------
    dtype : str, optional
        Of the matrix; `config.floatX` if it is not given.
    context_name : str, optional
        Where it is made; the default context if it is not given.
    """

    __props__ = ("dtype", "context_name")

    def __init__(self, dtype: DTypeLike | None = None, context_name: str | None = None) -> None:
        self.dtype = np.dtype(config.floatX if dtype is None else dtype).name
        self.context_name = context_name

    def make_node(self, n: Any, m: Any, k: Any = 0) -> Apply:
        """Return the node for `n` rows and `m` columns, with the ones `k` to the right of the main diagonal."""
        inputs = [_as_integer(value, name) for value, name in ((n, "n"), (m, "m"), (k, "k"))]
        matrix = OpenCLArrayType(self.dtype, (False, False), context_name=self.context_name)
        return Apply(self, inputs, [matrix()])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[tuple[Variable, Variable]]:
        n, m, _ = node.inputs
        return [(n, m)]

    def grad(self, inputs: Sequence[Variable], output_grads: Sequence[Variable]) -> list[Variable]:
        return [grad_undefined(self, i, x, "sizes are whole numbers") for i, x in enumerate(inputs)]

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return [Kernel(_CODE.format(ctype=ctype(self.dtype), one=_one(self.dtype)))]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        n, m, k = inputs
        n, m, k = int(n), int(n if m is None else m), int(k)  # as NumPy's eye
        row, column = max(-k, 0), max(k, 0)
        matrix = output_zeros(outputs[0], context, (n, m), self.dtype)
        count = min(n - row, m - column)
        if count > 0:
            kernels["eye"].scall(count, matrix, row * m + column, m + 1, count)


def _one(dtype: str) -> str:
    if dtype.startswith("complex"):
        return f"({ctype(dtype)})(1, 0)"
    return f"{write_w(dtype)}(1)"


def _as_integer(value: Any, name: str) -> Variable:
    var = as_tensor_variable(value)
    if var.ndim or var.dtype not in _INTEGERS:
        raise TypeError(f"{name} of an eye has to be a whole number, not {var.type}")
    return var


_INTEGERS = frozenset(np.dtype(code).name for code in "bBhHiIlLqQ")

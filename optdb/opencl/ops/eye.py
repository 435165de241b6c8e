"""Theano's `Eye` on the device; the sizes and the diagonal's offset are scalars on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from optdb.codegen.diagonals import Eye
from optdb.codegen.operation import Operation
from optdb.host.api.config import config
from optdb.host.api.graph import Apply, Variable
from optdb.host.api.ops import grad_undefined
from optdb.host.api.variables import as_tensor_variable
from optdb.opencl.ops.shell import Shell
from optdb.opencl.type import OpenCLArrayType


class OpenCLEye(Shell):
    """``numpy.eye(n, m, k)`` on a device.

    Parameters
    ----------
    dtype : str, optional
        Dtype of the matrix; by default, `config.floatX`.
    context_name : str, optional
        Context of the matrix; by default, the default context.
    """

    __props__ = ("dtype", "context_name")

    def __init__(self, dtype: DTypeLike | None = None, context_name: str | None = None) -> None:
        self.dtype = np.dtype(config.floatX if dtype is None else dtype).name
        self.context_name = context_name

    def make_node(self, n: Any, m: Any, k: Any = 0) -> Apply:
        """Return a node for `n` rows, `m` columns, and ones `k` elements to the right of the main diagonal."""
        inputs = [_as_integer(value, name) for value, name in ((n, "n"), (m, "m"), (k, "k"))]
        matrix = OpenCLArrayType(self.dtype, (False, False), context_name=self.context_name)
        return Apply(self, inputs, [matrix()])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[tuple[Variable, Variable]]:
        n, m, _ = node.inputs
        return [(n, m)]

    def grad(self, inputs: Sequence[Variable], output_grads: Sequence[Variable]) -> list[Variable]:
        return [grad_undefined(self, i, x, "sizes must be integers") for i, x in enumerate(inputs)]

    def operation(self, node: Apply) -> Operation:
        return Eye(self.get_context(node), self.dtype)


def _as_integer(value: Any, name: str) -> Variable:
    var = as_tensor_variable(value)
    if var.ndim or var.dtype not in _INTEGERS:
        raise TypeError(f"{name} of an eye must be an integer, not {var.type}")
    return var


_INTEGERS = frozenset(np.dtype(code).name for code in "bBhHiIlLqQ")

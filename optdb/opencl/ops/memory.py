"""Ops that create arrays from lengths or diagonals, return views of diagonals, or fill diagonals.

Lengths are on the host. If the inputs do not determine a context, the ops store a context's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from optdb.codegen import creation
from optdb.codegen.creation import Count, Fill, Triangle
from optdb.codegen.operation import Operation, Outputs, output_array
from optdb.codegen.views import diagonal
from optdb.host.api import ops as host
from optdb.host.api import scalars
from optdb.host.api.config import config
from optdb.host.api.graph import Apply, Variable
from optdb.host.api.variables import as_tensor_variable
from optdb.opencl.kernel_ops.base import BeforeOp, Performed
from optdb.opencl.lifting import register_counterparts
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.counterpart_base import View, on_one_device
from optdb.opencl.ops.elemwise import cast
from optdb.opencl.ops.shell import Shell, spec_of
from optdb.opencl.transfers import as_opencl_variable
from optdb.opencl.type import OpenCLArrayType
from optdb.runtime.sizes import as_int


class OpenCLAlloc(Shell, host.Alloc):
    """An array filled with a value broadcast to the array's shape, in the default context unless another is named."""

    __props__ = ("context_name",)

    def __init__(self, context_name: str | None = None) -> None:
        self.context_name = context_name

    def make_node(self, value: Any, *shape: Any) -> Apply:
        value = as_opencl_variable(value, self.context_name)
        like = host.Alloc.make_node(self, value.type.host_type(), *shape)
        out = OpenCLArrayType(value.type.dtype, like.outputs[0].type.broadcastable, self.context_name)()
        return Apply(self, [value, *like.inputs[1:]], [out])

    def operation(self, node: Apply) -> Operation:
        return Fill(self.get_context(node), spec_of(node.inputs[0]), node.outputs[0].type.ndim)


class _Maker(BeforeOp):
    """Creates an array from host numbers, by default in the default context and with the host op's default dtype."""

    __props__ = ("dtype", "context_name")
    dtype: str

    def __init__(self, dtype: str | None = None, context_name: str | None = None) -> None:
        super().__init__(dtype)  # type: ignore[call-arg]  # the host op's class is next
        self.context_name = context_name

    def make_node(self, *numbers: Any) -> Apply:
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
        """Call `perform`; unlike the host op, this op does not fill the array for debugging."""
        self.perform(node, inputs, outputs)


class OpenCLARange(_Maker, Shell, host.ARange):
    """Evenly spaced numbers."""

    def operation(self, node: Apply) -> Operation:
        return Count(self.get_context(node), self.dtype)


class OpenCLTri(_Maker, Shell, host.Tri):
    """A matrix with ones at and below a diagonal, and zeros elsewhere."""

    def operation(self, node: Apply) -> Operation:
        return Triangle(self.get_context(node), self.dtype)


class OpenCLEye(Shell):
    """``numpy.eye(n, m, k)`` on a device, by default with `config.floatX` and in the default context."""

    __props__ = ("dtype", "context_name")

    def __init__(self, dtype: DTypeLike | None = None, context_name: str | None = None) -> None:
        self.dtype = np.dtype(config.floatX if dtype is None else dtype).name
        self.context_name = context_name

    def make_node(self, n: Any, m: Any, k: Any = 0) -> Apply:
        """Return a node for `n` rows and `m` columns; the ones are `k` columns to the right of the main diagonal."""
        inputs = [_as_integer(value, name) for value, name in ((n, "n"), (m, "m"), (k, "k"))]
        matrix = OpenCLArrayType(self.dtype, (False, False), context_name=self.context_name)
        return Apply(self, inputs, [matrix()])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[tuple[Variable, Variable]]:
        n, m, _ = node.inputs
        return [(n, m)]

    def grad(self, inputs: Sequence[Variable], output_grads: Sequence[Variable]) -> list[Variable]:
        return [host.grad_undefined(self, i, x, "sizes must be integers") for i, x in enumerate(inputs)]

    def operation(self, node: Apply) -> Operation:
        return creation.Eye(self.get_context(node), self.dtype)


def _as_integer(value: Any, name: str) -> Variable:
    var = as_tensor_variable(value)
    if var.ndim or var.dtype not in _INTEGERS:
        raise TypeError(f"{name} of an eye must be an integer, not {var.type}")
    return var


_INTEGERS = frozenset(np.dtype(code).name for code in "bBhHiIlLqQ")


class OpenCLExtractDiag(View, host.ExtractDiag):
    """A view of the diagonals over two axes, `offset` elements to the right of the main diagonal."""

    __props__ = ("offset", "axis1", "axis2")
    own_attributes = frozenset({"view"})
    view_map = {0: [0]}  # noqa: RUF012  (the host's protocol)

    def __init__(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> None:
        super().__init__(offset, axis1, axis2, view=True)

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        (x,) = inputs
        outputs[0][0] = diagonal(x, self.offset, self.axis1, self.axis2)


class OpenCLAllocDiag(Counterpart, Shell, host.AllocDiag):
    """An array of zeros with the input along a diagonal over two axes."""

    computed_by = creation.AroundDiagonal
    settings = ("offset", "axis1", "axis2")


class _Fill(Counterpart, Shell):
    """Base class of the two ops that copy an array and write a number along a diagonal of the copy."""

    device_inputs = slice(0, 2)

    def make_node(self, x: Any, value: Any, *offset: Any) -> Apply:
        x, value = on_one_device([x, value])
        if scalars.upcast(x.type.dtype, value.type.dtype) == x.type.dtype:  # the host op rejects other dtypes
            value = cast(value, x.type.dtype)
        return super().make_node(x, value, *offset)


class OpenCLFillDiagonal(_Fill, host.FillDiagonal):
    """A copy of an array with a number written along its main diagonal."""

    computed_by = creation.FillDiagonal


class OpenCLFillDiagonalOffset(_Fill, host.FillDiagonalOffset):
    """A copy of a matrix with a number written along a diagonal; the diagonal's offset is on the host."""

    computed_by = creation.FillDiagonalOffset


register_counterparts("lift_diagonal", 26, [host.ExtractDiag])
register_counterparts("lift_fill_diagonal", 37, [host.FillDiagonal, host.FillDiagonalOffset])

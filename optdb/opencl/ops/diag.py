"""Theano's diagonal ops on the device: they return diagonals as views, create diagonal arrays, and fill diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from optdb.codegen import diagonals
from optdb.codegen.operation import Operation
from optdb.codegen.views import diagonal
from optdb.host.api import ops as host
from optdb.host.api import scalars
from optdb.host.api.graph import Apply
from optdb.opencl.lifting import register_counterparts
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.counterpart_base import View, on_one_device
from optdb.opencl.ops.elemwise import cast
from optdb.opencl.ops.shell import Shell, spec_of


class OpenCLExtractDiag(View, host.ExtractDiag):
    """A view of the diagonals of matrices along two axes, `offset` elements to the right of the main diagonal."""

    __props__ = ("offset", "axis1", "axis2")
    own_attributes = frozenset({"view"})
    view_map = {0: [0]}  # noqa: RUF012  (the host's protocol)

    def __init__(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> None:
        super().__init__(offset, axis1, axis2, view=True)

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        (x,) = inputs
        outputs[0][0] = diagonal(x, self.offset, self.axis1, self.axis2)


class OpenCLAllocDiag(Counterpart, Shell, host.AllocDiag):
    """An array of zeros that contains the input along a diagonal of two axes."""

    def operation(self, node: Apply) -> Operation:
        where = self.offset, self.axis1, self.axis2
        return diagonals.AroundDiagonal(self.get_context(node), spec_of(node.inputs[0]), *where)


class _Fill(Counterpart, Shell):
    """Base class of the two ops that write a number along a diagonal of a copy."""

    device_inputs = slice(0, 2)
    #: The class of the operation that computes the op.
    computed_by: ClassVar[type[diagonals.FillDiagonal]]

    def make_node(self, x: Any, value: Any, *offset: Any) -> Apply:
        """Return a node for an array, a number and, for `OpenCLFillDiagonalOffset`, the diagonal's offset."""
        x, value = on_one_device([x, value])
        if scalars.upcast(x.type.dtype, value.type.dtype) == x.type.dtype:  # otherwise the host op rejects it
            value = cast(value, x.type.dtype)
        return super().make_node(x, value, *offset)

    def operation(self, node: Apply) -> Operation:
        return self.computed_by(self.get_context(node), spec_of(node.inputs[0]))


class OpenCLFillDiagonal(_Fill, host.FillDiagonal):
    """An array with a number along its main diagonal."""

    computed_by = diagonals.FillDiagonal


class OpenCLFillDiagonalOffset(_Fill, host.FillDiagonalOffset):
    """A matrix with a number along one of its diagonals; the diagonal's offset is on the host."""

    computed_by = diagonals.FillDiagonalOffset


register_counterparts("lift_diagonal", 26, [host.ExtractDiag])
register_counterparts("lift_fill_diagonal", 37, [host.FillDiagonal, host.FillDiagonalOffset])

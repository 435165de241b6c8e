"""Ops on a loop's sequences: products that the loop has saved, and a common order for two sequences in a product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.operation import Operation
from optdb.codegen.recurrence import SavedProducts
from optdb.codegen.views import full_shape, in_matching_order
from optdb.host.api.config import config
from optdb.host.api.graph import Apply, Op, Variable
from optdb.opencl.ops.counterpart_base import Performed
from optdb.opencl.ops.shell import Shell, spec_of
from optdb.runtime.sizes import lengths_of


class OpenCLSavedProducts(Shell):
    """Products of states and a matrix, plus an optional addend; a loop has already computed some of the products."""

    __props__ = ()
    view_map = {0: [0]}  # noqa: RUF012  (the host's protocol)
    #: The matrix product rejects lengths that do not match.
    checks_lengths = True

    def make_node(self, *inputs: Variable) -> Apply:
        """Return a node for device arrays."""
        return Apply(self, list(inputs), [inputs[0].type()])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        return [(*shapes[2][:2], shapes[3][1])]

    def operation(self, node: Apply) -> Operation:
        return SavedProducts(self.get_context(node), spec_of(node.inputs[2]), config.optdb.matmul_precision)


class OpenCLInOneOrder(Performed, Op):
    """Two sequences, both in their own order or both reversed, for a product that sums over all their rows.

    The inputs are two sequences with three axes, and the shapes of the matrices into which they are reshaped for the
    product. Both are reversed if fewer reshapes then need a copy. `widths` has, for each matrix, the axis that is the
    last axis of a sequence's parts; the product sums over the other axis.
    """

    __props__ = ("widths",)
    view_map = {0: [0], 1: [1]}  # noqa: RUF012  (the host's protocol)

    def __init__(self, widths: tuple[int, int]) -> None:
        self.widths = widths

    def make_node(self, x: Variable, y: Variable, of_x: Variable, of_y: Variable) -> Apply:
        """Return a node for device arrays and for lengths on the host."""
        return Apply(self, [x, y, of_x, of_y], [x.type(), y.type()])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        return shapes[:2]

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        arrays, lengths = inputs[:2], map(lengths_of, inputs[2:])
        # Check the shapes, since a reshape may do something other than merge the leading axes.
        is_merging = all(
            full_shape(x.shape, wanted, 2)[width] == x.shape[2]
            for x, wanted, width in zip(arrays, lengths, self.widths, strict=True)
        )
        outputs[0][0], outputs[1][0] = in_matching_order(*arrays) if is_merging else arrays

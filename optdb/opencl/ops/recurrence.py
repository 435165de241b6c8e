"""Products of the states of loops, which the loops may have saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.operation import Operation
from optdb.codegen.recurrence import SavedProducts
from optdb.host.api.config import config
from optdb.host.api.graph import Apply, Variable
from optdb.opencl.ops.shell import Shell, spec_of


class OpenCLSavedProducts(Shell):
    """What a loop has computed in some of its steps: the product of a state and a matrix, and what is added to it.

    The inputs are those of the operation.
    """

    __props__ = ()
    view_map = {0: [0]}  # noqa: RUF012  (the host's protocol)
    #: A product refuses what does not fit.
    checks_lengths = True

    def make_node(self, *inputs: Variable) -> Apply:
        """Return the node for arrays of the device."""
        return Apply(self, list(inputs), [inputs[0].type()])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        return [(*shapes[2][:2], shapes[3][1])]

    def operation(self, node: Apply) -> Operation:
        return SavedProducts(self.get_context(node), spec_of(node.inputs[2]), config.optdb.matmul_precision)

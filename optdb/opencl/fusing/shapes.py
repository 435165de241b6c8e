"""Takes shapes of operands instead of those of elementwise results, which need not be stored for them."""

from __future__ import annotations

from collections.abc import Iterator

from optdb.host.api.graph import FunctionGraph, Variable
from optdb.host.api.ops import Shape, Shape_i
from optdb.opencl.fusing.groups import can_fuse


def shapes_of_operands(fgraph: FunctionGraph) -> Iterator[tuple[Variable, Variable]]:
    """Yield each shape of an elementwise result, and the same of an operand that is not broadcast.

    Otherwise a result that is only summed has another user, and is stored before it is summed. The mean of an array has
    one: the number of its elements.
    """
    for node in fgraph.toposort():
        if isinstance(node.op, Shape | Shape_i):
            (var,) = node.inputs
            operand = _of_same_shape(var)
            if operand is not var:
                yield node.outputs[0], node.op(operand)


def _of_same_shape(var: Variable) -> Variable:
    """Return the operand at the beginning of elementwise work that has the shape of its result."""
    while var.owner is not None and can_fuse(var.owner):
        pattern = var.type.broadcastable
        operands = [x for x in var.owner.inputs if x.type.broadcastable == pattern]
        if not operands:
            return var
        var = operands[0]
    return var

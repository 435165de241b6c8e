"""Replaces shapes of elementwise results with shapes of operands, so that no result is stored only for its shape."""

from __future__ import annotations

from collections.abc import Iterator

from optdb.host.api.graph import FunctionGraph, Variable
from optdb.host.api.ops import Shape, Shape_i
from optdb.opencl.fusing.groups import can_fuse


def shapes_of_operands(fgraph: FunctionGraph) -> Iterator[tuple[Variable, Variable]]:
    """Yield each shape of an elementwise result, and the shape of an operand that is not broadcast.

    A shape counts as a user of its array. If a result is otherwise only summed, this second user would make the kernel
    store the result before the sum. The mean of a result has such a user: it divides by the number of elements, which
    comes from the shape.
    """
    for node in fgraph.toposort():
        if isinstance(node.op, Shape | Shape_i):
            (var,) = node.inputs
            operand = _of_same_shape(var)
            if operand is not var:
                yield node.outputs[0], node.op(operand)


def _of_same_shape(var: Variable) -> Variable:
    """Return the first operand in a chain of elementwise ops that has the same shape as the result."""
    while var.owner is not None and can_fuse(var.owner):
        pattern = var.type.broadcastable
        operands = [x for x in var.owner.inputs if x.type.broadcastable == pattern]
        if not operands:
            return var
        var = operands[0]
    return var

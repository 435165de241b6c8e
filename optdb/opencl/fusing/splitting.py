"""Splits wide sums and products so that each part can be fused with its operands into one kernel.

A sum of hundreds of terms has more arguments than a kernel can take, so each term would need its own kernel. Each part
adds its terms to the sum of the previous parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from optdb.host.api import scalars
from optdb.host.api.graph import Apply, Constant, FunctionGraph, Variable, clients, is_output, op_of, owner_of
from optdb.host.api.rewriters import replace_all
from optdb.host.api.traces import copy_trace
from optdb.opencl.fusing.groups import MOST_STEPS, argument_bytes, can_fuse, node_program
from optdb.opencl.ops.elemwise import OpenCLElemwise

#: Scalar ops that can be split into a chain of ops with fewer inputs.
_FOLDS = (scalars.Add, scalars.Mul)


@dataclass
class _Operands:
    """Some of a node's inputs, and the nodes that compute only these inputs."""

    steps: int = 0
    #: The other variables that these nodes read.
    arrays: set[Variable] = field(default_factory=set)
    numbers: set[Variable] = field(default_factory=set)

    def joined(self, other: _Operands) -> _Operands:
        return _Operands(self.steps + other.steps, self.arrays | other.arrays, self.numbers | other.numbers)

    def fit(self, node: Apply) -> bool:
        """Tell whether one kernel has room for these inputs, one more array, and an output of the node's type."""
        kind = node.outputs[0].type
        size = argument_bytes(max(kind.ndim, 1), len(self.arrays) + 2, len(self.numbers))
        return self.steps < MOST_STEPS and size <= kind.context.profile.max_parameter_bytes


def split_wide_nodes(fgraph: FunctionGraph) -> set[Apply]:
    """Split sums and products that are too wide; for each, return the nodes of all parts except the last."""
    separate: set[Apply] = set()
    for node in fgraph.toposort():
        if not _may_be_split(node):
            continue
        parts = _parts(fgraph, node)
        if len(parts) > 1:
            separate.update(_split(fgraph, node, parts))
    return separate


def _may_be_split(node: Apply) -> bool:
    if not can_fuse(node) or type(op_of(node, OpenCLElemwise).scalar_op) not in _FOLDS:
        return False
    dtype = node.outputs[0].type.dtype
    return len(node.inputs) > 2 and all(var.type.dtype == dtype for var in node.inputs)


def _parts(fgraph: FunctionGraph, node: Apply) -> list[list[Variable]]:
    """Divide a node's inputs, in order, into one part for each kernel."""
    parts: list[list[Variable]] = [[]]
    taken = _Operands()
    for var in node.inputs:
        operands = _operands(fgraph, var, node)
        together = taken.joined(operands)
        if len(parts[-1]) > 1 and not together.fit(node):
            parts.append([])
            together = operands
        parts[-1].append(var)
        taken = together
    return parts


def _operands(fgraph: FunctionGraph, var: Variable, user: Apply) -> _Operands:
    """Return the operands for computing `var` within a kernel, as far as the limits of one kernel allow."""
    operands = _Operands()
    todo = [(var, user)]
    while todo:
        var, user = todo.pop()
        if isinstance(var, Constant):
            operands.numbers.add(var)
        elif operands.steps < MOST_STEPS and _is_for(fgraph, var, user):
            maker = owner_of(var)
            operands.steps += len(node_program(maker).steps)
            todo += [(below, maker) for below in maker.inputs]
        else:
            operands.arrays.add(var)
    return operands


def _is_for(fgraph: FunctionGraph, var: Variable, user: Apply) -> bool:
    """Tell whether only `user` uses an elementwise op's result and can be fused with that op."""
    if var.owner is None or not can_fuse(var.owner) or len(var.owner.outputs) > 1:
        return False
    same_pattern = var.type.broadcastable == user.outputs[0].type.broadcastable
    return same_pattern and all(not is_output(client) and client is user for client, _ in clients(fgraph, var))


def _split(fgraph: FunctionGraph, node: Apply, parts: list[list[Variable]]) -> list[Apply]:
    op = OpenCLElemwise(op_of(node, OpenCLElemwise).scalar_op)
    made: list[Apply] = []
    for part in parts:
        before = [made[-1].outputs[0]] if made else []
        made.append(op.make_node(*before, *part))
    (old,), (new,) = node.outputs, made[-1].outputs
    if new.type != old.type:
        return []
    for part_node in made[:-1]:
        copy_trace(old, part_node.outputs[0])
    replace_all(fgraph, [(old, new)], reason="split_wide_nodes")
    return made[:-1]

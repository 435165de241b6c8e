"""Groups of ops with descriptions; each group becomes one :class:`OpenCLFused`, whose kernels the scheduler chooses.

A node's stage is the maximum number of other ops on a path to the node. Nodes of the same stage that are connected, or
that read the same array, form a group: no path leaves a group and returns to it. A node that only nodes of later stages
use moves to the first of these stages, so that its result need not be stored.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from optdb.host.api.graph import Apply, Constant, FunctionGraph, Variable, clients, is_output, owner_of
from optdb.numpy_types import HostArray
from optdb.opencl.fusing.groups import ALWAYS, needs_of
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.fused import OpenCLFused
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.ops.views import OpenCLDimShuffle
from optdb.opencl.transfers import OpenCLFromHost
from optdb.opencl.variables import OpenCLConstant

#: Maximum number of elements of a constant that kernels contain.
_MOST_CONSTANT = 64


def is_described(node: Apply) -> bool:
    """Tell whether a node may join a group."""
    op = node.op
    if type(op) is OpenCLElemwise:
        return not op.inplace_pattern
    if type(op) is OpenCLCAReduce:
        return op.pre_scalar_op is None and op.post_scalar_op is None
    return type(op) is OpenCLDimShuffle


def groups_of(fgraph: FunctionGraph) -> list[list[Apply]]:
    """Return the groups of a graph, each in topological order."""
    nodes = fgraph.toposort()
    stages = _stages(fgraph, nodes)
    needs = needs_of(fgraph)
    groups = _Partition(stages)
    users: dict[Hashable, Apply] = {}
    for node in stages:
        kind = stages[node], needs.get(node, ALWAYS), node.outputs[0].type.context_name
        for var in node.inputs:
            if _constant(var) is None:
                groups.merge(users.setdefault((var, kind), node), node)
        for out in node.outputs:
            users[out, kind] = node
    return [group for group in groups if any(type(node.op) is not OpenCLDimShuffle for node in group)]


def _stages(fgraph: FunctionGraph, nodes: Sequence[Apply]) -> dict[Apply, int]:
    """Return the stage of each described node."""
    stages: dict[Apply, int] = {}
    for node in nodes:
        joins = is_described(node)
        before = ((var.owner, stages[var.owner]) for var in node.inputs if var.owner is not None)
        # A node that depends on no described node is not on a path between groups.
        stages[node] = max((stage + (joins and not is_described(maker)) for maker, stage in before), default=-1)
        if joins:
            stages[node] = max(stages[node], 0)
    for node in reversed(nodes):
        users = [client for out in node.outputs for client, _ in clients(fgraph, out)]
        if is_described(node) and users and all(not is_output(user) and is_described(user) for user in users):
            stages[node] = min(stages[user] for user in users if not is_output(user))
    return {node: stages[node] for node in nodes if is_described(node)}


class _Partition:
    """Disjoint sets of nodes."""

    def __init__(self, nodes: Iterable[Apply]) -> None:
        self._set_of = {node: [node] for node in nodes}
        self._order = {node: number for number, node in enumerate(self._set_of)}

    def merge(self, one: Apply, other: Apply) -> None:
        small, large = sorted((self._set_of[one], self._set_of[other]), key=len)
        if small is large:
            return
        large += small
        self._set_of.update(dict.fromkeys(small, large))

    def __iter__(self) -> Iterator[list[Apply]]:
        sets = {id(members): members for members in self._set_of.values()}
        return iter([sorted(members, key=self._order.__getitem__) for members in sets.values()])


def fused_group(fgraph: FunctionGraph, group: Sequence[Apply]) -> list[tuple[Variable, Variable]]:
    """Return the results of a group that other nodes use, each with its replacement."""
    computing = [node for node in group if type(node.op) is not OpenCLDimShuffle]
    if len(computing) == 1 and not any(_constant(var) is not None for node in group for var in node.inputs):
        return []
    wanted = _wanted(fgraph, group)
    needed = _needed(group, wanted)
    made = {out for node in needed for out in node.outputs}
    outside = dict.fromkeys(var for node in needed for var in node.inputs if var not in made)
    constants = {var: value for var in outside if (value := _constant(var)) is not None}
    inputs = [var for var in outside if var not in constants]
    if not inputs:
        return []
    copies: dict[Variable, Variable] = {var: var.type() for var in outside}
    nodes = []
    for node in needed:
        copy = node.clone_with_new_inputs([copies[var] for var in node.inputs])
        copies.update(zip(node.outputs, copy.outputs, strict=True))
        nodes.append(copy)
    op = OpenCLFused(
        [copies[var] for var in inputs],
        [copies[var] for var in wanted],
        nodes,
        {copies[var]: value for var, value in constants.items()},
    )
    return list(zip(wanted, op.make_node(*inputs).outputs, strict=True))


def _wanted(fgraph: FunctionGraph, group: Sequence[Apply]) -> list[Variable]:
    """Return the results that the group must store; views of results are made outside of the group."""
    inside = set(group)
    wanted: dict[Variable, None] = {}
    for node in reversed(group):
        for out in node.outputs:
            users = {client for client, _ in clients(fgraph, out)}
            if not users <= inside or out in wanted:
                if type(node.op) is not OpenCLDimShuffle:
                    wanted[out] = None
                elif node.inputs[0].owner in inside:
                    wanted[node.inputs[0]] = None
    return [var for var in reversed(wanted) if type(owner_of(var).op) is not OpenCLDimShuffle]


def _needed(group: Sequence[Apply], wanted: Sequence[Variable]) -> list[Apply]:
    """Return the nodes that compute the wanted results."""
    needed, variables = [], set(wanted)
    for node in reversed(group):
        if not variables.isdisjoint(node.outputs):
            needed.append(node)
            variables.update(node.inputs)
    return needed[::-1]


def _constant(var: Variable) -> HostArray | None:
    """Return a variable's value if it is a small constant or a view of one, else None."""
    if var.owner is not None and type(var.owner.op) is OpenCLDimShuffle:
        inner, op = _constant(var.owner.inputs[0]), var.owner.op
        if inner is None or any(inner.shape[axis] != 1 for axis in op.drop):
            return None
        order = [axis for axis in op.new_order if isinstance(axis, int)]
        lengths = [inner.shape[axis] if isinstance(axis, int) else 1 for axis in op.new_order]
        return inner.transpose([*order, *op.drop]).reshape(lengths)
    value = constant_value(var)
    return value if value is not None and value.size <= _MOST_CONSTANT else None


def constant_value(var: Variable) -> HostArray | None:
    """Return the value of a constant that is on a device or copied to it; None for other variables."""
    if isinstance(var, OpenCLConstant):
        return var.on_host
    if var.owner is None or not isinstance(var.owner.op, OpenCLFromHost):
        return None
    (origin,) = var.owner.inputs
    return origin.data if isinstance(origin, Constant) else None

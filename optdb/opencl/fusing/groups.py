"""Fusion groups: each group is a set of nodes that become one kernel.

Nodes are visited from the outputs to the inputs. Each node joins a group that uses it, unless a path would then leave
the group and reenter it; Pearce and Kelly's algorithm (see :mod:`optdb.topo.order`) maintains the topological order.
Nothing is computed twice. A branch that is not taken must compute nothing, so nodes are merged only if the same
branches need them. A frame maps each axis of a kernel to an axis of an array, or to ``'x'`` where the array is
broadcast, like a DimShuffle's order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from optdb.codegen.scalars.costs import is_cheap
from optdb.codegen.scalars.program import ScalarProgram
from optdb.host.api.control_flow import IfElse
from optdb.host.api.graph import Apply, Constant, FunctionGraph, Variable, clients, is_output, op_of
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.views import OpenCLDimShuffle
from optdb.opencl.scalar_programs import program_of
from optdb.topo.order import TopologicalOrder

Frame = tuple[int | str, ...]
#: A set of branches, each given as an IfElse node and the branch's index; `ALWAYS` for nodes that every call runs.
Needs = frozenset[tuple[Apply, int]]
ALWAYS: Needs = frozenset()

#: Maximum number of scalar ops in one kernel; larger kernels compile slowly and spill registers.
MOST_STEPS = 80


def needs_of(fgraph: FunctionGraph) -> Mapping[Apply, Needs]:
    """Map nodes to the branches that need them; nodes that are missing from the map are always computed."""
    nodes = fgraph.toposort()
    if not any(isinstance(node.op, IfElse) for node in nodes):
        return {}
    found: dict[Apply, Needs] = {}
    for node in reversed(nodes):
        found[node] = _needs(fgraph, node, found)
    return found


def _needs(fgraph: FunctionGraph, node: Apply, of_users: Mapping[Apply, Needs]) -> Needs:
    branches: set[tuple[Apply, int]] = set()
    for out in node.outputs:
        for client, index in clients(fgraph, out):
            if is_output(client):
                return ALWAYS
            if isinstance(client.op, IfElse) and index:
                branches.add((client, (index - 1) // client.op.n_outs))
            elif not of_users[client]:
                return ALWAYS
            else:
                branches |= of_users[client]
    return frozenset(branches)


def is_for_one(fgraph: FunctionGraph, var: Variable) -> bool:
    """Tell whether a variable is used exactly once, as an input of a node."""
    users = clients(fgraph, var)
    return len(users) == 1 and not is_output(users[0][0])


def identity(ndim: int) -> Frame:
    """Return the frame of an array that has the same axes as the kernel."""
    return tuple(range(ndim))


def through(frame: Frame, new_order: Sequence[int | str]) -> Frame:
    """Return the frame of a DimShuffle's input, given the frame of its output."""
    return tuple(axis if isinstance(axis, str) else new_order[axis] for axis in frame)


def seen_through(var: Variable, frame: Frame) -> tuple[Variable, Frame]:
    """Return the input of a chain of DimShuffles, and the input's frame; `frame` is the frame of the chain's result."""
    while var.owner is not None and type(var.owner.op) is OpenCLDimShuffle:
        frame = through(frame, var.owner.op.new_order)
        (var,) = var.owner.inputs
    return var, frame


def pattern(var: Variable, frame: Frame) -> tuple[bool, ...]:
    """Return, for each axis of the kernel, whether an array is known to be broadcast along it."""
    return tuple(axis == "x" or var.type.broadcastable[axis] for axis in frame)


def common_pattern(variables: Iterable[Variable]) -> tuple[bool, ...]:
    """Return the broadcast pattern that results if variables with equal `ndim` are broadcast against each other."""
    return tuple(all(lengths) for lengths in zip(*(var.type.broadcastable for var in variables), strict=True))


def seen(var: Variable, frame: Frame) -> Variable:
    """Return an array, or a view of it, with the axes given by `frame`."""
    if frame == identity(var.type.ndim):
        return var
    return OpenCLDimShuffle(var.type.broadcastable, frame)(var)


class FusionGroup:
    """An element of the topological order: nodes that become one kernel, or a single node."""

    __slots__ = ("after", "before", "context_name", "inputs", "members", "pattern", "steps", "wanted")

    def __init__(self, node: Apply) -> None:
        self.members: dict[Apply, Frame] = {}
        #: The groups that this group depends on, and the groups that depend on it.
        self.before: set[FusionGroup] = set()
        self.after: set[FusionGroup] = set()
        if not can_fuse(node):
            return
        out = node.outputs[0]
        self.context_name = out.type.context_name
        self.pattern = out.type.broadcastable
        self.members[node] = identity(out.type.ndim)
        self.inputs = {(x, self.members[node]) for x in node.inputs}
        self.steps = len(node_program(node).steps)
        self.wanted = len(node.outputs)


def can_fuse(node: Apply) -> bool:
    """Tell whether a node may join a group."""
    return type(node.op) is OpenCLElemwise and not node.op.inplace_pattern


def node_program(node: Apply) -> ScalarProgram:
    """Return the scalar program of an elementwise node."""
    return program_of(op_of(node, OpenCLElemwise).scalar_op, [var.type.dtype for var in node.inputs])


class FusionGroups:
    """The fusion groups of a graph."""

    def __init__(self, fgraph: FunctionGraph, separate: Collection[Apply] = ()) -> None:
        """Find the groups; nodes in `separate` do not join groups that use them."""
        self._fgraph = fgraph
        self._separate = separate
        self._needs = needs_of(fgraph)
        self._order = TopologicalOrder(lambda group: group.before, lambda group: group.after)
        nodes = fgraph.toposort()
        self._index = {node: i for i, node in enumerate(nodes)}
        self._group_of = {node: FusionGroup(node) for node in nodes}
        for node, group in self._group_of.items():
            for var in node.inputs:
                if var.owner is not None:
                    group.before.add(self._group_of[var.owner])
                    self._group_of[var.owner].after.add(group)
        self._order.extend(self._group_of.values())
        for node in reversed(nodes):
            if can_fuse(node) and node not in self._separate:
                self._join_users(node)

    def __iter__(self) -> Iterator[FusionGroup]:
        return iter(dict.fromkeys(group for group in self._group_of.values() if group.members))

    def in_order(self, group: FusionGroup) -> list[Apply]:
        """Return a group's nodes, operands first."""
        return sorted(group.members, key=self._index.__getitem__)

    def _join_users(self, node: Apply) -> None:
        for (group, frame), between in self._users(node).items():
            if self._group_of[node] is not group and self._fits(node, group, frame, between):
                self._join(node, group, frame, between)

    def _users(self, node: Apply) -> dict[tuple[FusionGroup, Frame], list[Apply]]:
        """Map each use of a node to the DimShuffles between the node and the group.

        A use is a pair of a group that uses the node and the node's frame in this group.
        """
        uses: dict[tuple[FusionGroup, Frame], list[Apply]] = {}
        for out in node.outputs:
            for client, _ in clients(self._fgraph, out):
                if is_output(client):
                    continue
                use = self._seen_by(client)
                if use is not None:
                    uses.setdefault(use, []).extend(() if client in use[0].members else (client,))
        return uses

    def _seen_by(self, client: Apply) -> tuple[FusionGroup, Frame] | None:
        """Return the group that contains `client`, or the only group that reads its result.

        The second result is the frame of the client's input in this group.
        """
        group = self._group_of[client]
        if client in group.members:
            return group, group.members[client]
        if type(client.op) is not OpenCLDimShuffle:
            return None
        seen = set()
        for user, _ in clients(self._fgraph, client.outputs[0]):
            if is_output(user) or user not in self._group_of[user].members:
                return None
            group = self._group_of[user]
            seen.add((group, through(group.members[user], client.op.new_order)))
        return seen.pop() if len(seen) == 1 else None

    def _fits(self, node: Apply, group: FusionGroup, frame: Frame, between: list[Apply]) -> bool:
        """Tell whether a node may join a group, provided that the topological order allows it."""
        own_group = self._group_of[node]
        out = node.outputs[0]
        if own_group.context_name != group.context_name or not _has_room(group, own_group):
            return False
        if self._needs.get(node) != self._needs.get(next(iter(group.members))):
            return False
        if any(other != frame for var, other in group.inputs if var.owner is node):
            return False
        if frame == identity(out.type.ndim) and own_group.pattern == group.pattern:
            return True
        if len(own_group.members) > 1 or len(node.outputs) > 1 or self._is_wanted_outside(node, group, between):
            return False
        here = pattern(out, frame)
        return here == group.pattern or all(here) or is_cheap(node_program(node))

    def _is_wanted_outside(self, node: Apply, group: FusionGroup, between: list[Apply]) -> bool:
        return any(
            is_output(client) or (client not in group.members and client not in between)
            for out in node.outputs
            for client, _ in clients(self._fgraph, out)
        )

    def _join(self, node: Apply, group: FusionGroup, frame: Frame, between: list[Apply]) -> None:
        own_group = self._group_of[node]
        for view in between:
            if not self._merge(self._group_of[view], group):
                return
            self._group_of[view] = group
        if not self._merge(own_group, group):
            return
        is_alone = len(own_group.members) == 1
        group.members.update({node: frame} if is_alone else own_group.members)
        self._group_of.update(dict.fromkeys(own_group.members, group))
        inside = {*group.members, *between}
        inputs = group.inputs | ({(var, frame) for var in node.inputs} if is_alone else own_group.inputs)
        group.inputs = {(var, seen) for var, seen in inputs if var.owner not in inside}
        group.steps += own_group.steps
        group.wanted += sum(self._is_wanted_outside(member, group, between) for member in own_group.members)

    def _merge(self, gone: FusionGroup, kept: FusionGroup) -> bool:
        """Merge two groups at the later group's position unless a path connects them through a third group."""
        if gone is kept:
            return True
        first, later = (kept, gone) if self._order.precedes(kept, gone) else (gone, kept)
        for user in first.after:
            if user is not later and not self._order.put_after(user, (later,)):
                return False
        self._contract(gone, kept, position_of=later)
        return True

    def _contract(self, gone: FusionGroup, kept: FusionGroup, position_of: FusionGroup) -> None:
        if position_of is not kept:
            # The merged group takes the later one of the two groups' positions.
            self._order.remove(kept)
            position = self._order.position_of.pop(gone)
            position.node = kept
            self._order.position_of[kept] = position
        else:
            self._order.remove(gone)
        for near, far in (("before", "after"), ("after", "before")):
            for group in getattr(gone, near):
                others = getattr(group, far)
                others.discard(gone)
                if group is not kept:
                    others.add(kept)
            setattr(kept, near, (getattr(kept, near) | getattr(gone, near)) - {gone, kept})


def _has_room(group: FusionGroup, own: FusionGroup) -> bool:
    if group.steps + own.steps > MOST_STEPS:
        return False
    inputs = [var for var, _ in group.inputs | own.inputs]
    return takes_inputs(next(iter(group.members)).outputs[0], inputs, group.wanted + own.wanted)


def takes_inputs(result: Variable, inputs: Collection[Variable], arrays: int) -> bool:
    """Tell whether a device accepts a kernel that computes `result` from `inputs` and `arrays` additional arrays.

    Constants count as numbers.
    """
    numbers = sum(isinstance(var, Constant) for var in inputs)
    return takes_arguments(result, len(inputs) - numbers + arrays, numbers)


def takes_arguments(result: Variable, arrays: int, numbers: int = 0) -> bool:
    """Tell whether a device accepts a kernel that computes `result` from `arrays` arrays and `numbers` numbers."""
    ndim = max(result.type.ndim, 1)
    size = 8 * (2 + ndim + numbers) + arrays * (16 + 8 * ndim)
    return size <= result.type.context.profile.max_parameter_bytes

"""Which nodes become one kernel.

Outputs towards inputs, a node joins a group of its users. What it computes may be wanted
elsewhere, too: then the kernel has one more output. Two groups that use one value become one.
DimShuffles between members are seen through (see :mod:`frames`).

No path may leave a group and come back. So the groups, with each other node for itself, are
kept in a topological order, as Pearce and Kelly do (see :mod:`optdb.topo.order`): to join, the
other users of a node have to find places behind the group. Nothing is computed twice, and what
is expensive is not computed for more elements than before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optdb.host import scalars
from optdb.host.graph import Apply, Constant, FunctionGraph, clients, is_output
from optdb.opencl.fusing.frames import Frame, identity, pattern, through
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.views import OpenCLDimShuffle
from optdb.opencl.scalars.program import Program
from optdb.opencl.type import OpenCLArrayType
from optdb.topo.order import TopologicalOrder

#: So many scalar ops are put in one kernel: more take long to compile, and find no registers.
MOST_STEPS = 80

#: Costs no more than to read a value: may be computed for each element anew.
_CHEAP = {
    *(scalars.Add, scalars.Mul, scalars.Sub, scalars.Neg, scalars.Sqr, scalars.Cast, scalars.Identity, scalars.Second),
    *(scalars.EQ, scalars.NEQ, scalars.LT, scalars.LE, scalars.GT, scalars.GE, scalars.Switch),
    *(scalars.Maximum, scalars.Minimum, scalars.Abs),
}


class FusionUnit:
    """A node, or the nodes of a group: what stands at one place of the order.

    Attributes
    ----------
    members : dict
        The frame of each node.
    before, behind : set of FusionUnit
        What it depends on, and what depends on it.
    """

    __slots__ = ("before", "behind", "context_name", "frame_of", "inputs", "members", "pattern", "steps", "wanted")

    def __init__(self, node: Apply) -> None:
        self.members: dict[Apply, Frame] = {}
        self.before: set[FusionUnit] = set()
        self.behind: set[FusionUnit] = set()
        if not can_fuse(node):
            return
        out = node.outputs[0]
        self.context_name = out.type.context_name
        self.pattern = out.type.broadcastable
        self.members[node] = identity(out.type.ndim)
        self.inputs = {(x, self.members[node]) for x in node.inputs}
        self.steps = _steps_of(node)
        self.wanted = len(node.outputs)


def can_fuse(node: Apply) -> bool:
    """Tell whether a node may be in a group."""
    return type(node.op) is OpenCLElemwise and not node.op.inplace_pattern


def _steps_of(node: Apply) -> int:
    op = node.op.scalar_op
    if isinstance(op, Program):
        return len(op.steps)
    return len(op.fgraph.apply_nodes) if isinstance(op, scalars.Composite) else 1


class FusionGroups:
    """The groups of a graph.

    Parameters
    ----------
    fgraph : FunctionGraph
        The graph.
    """

    def __init__(self, fgraph: FunctionGraph) -> None:
        self._fgraph = fgraph
        self._unit_of: dict[Apply, FusionUnit] = {}
        self._order = TopologicalOrder(lambda unit: unit.before, lambda unit: unit.behind)
        nodes = fgraph.toposort()
        self._place_of = {node: i for i, node in enumerate(nodes)}
        for node in nodes:
            self._unit_of[node] = FusionUnit(node)
        for node, unit in self._unit_of.items():
            for var in node.inputs:
                if var.owner is not None:
                    unit.before.add(self._unit_of[var.owner])
                    self._unit_of[var.owner].behind.add(unit)
        self._order.extend(self._unit_of.values())
        for node in reversed(nodes):
            if can_fuse(node):
                self._place(node)

    def __iter__(self) -> Iterator[FusionUnit]:
        found = {id(unit): unit for unit in self._unit_of.values() if unit.members}
        return iter(found.values())

    def in_order(self, unit: FusionUnit) -> list[Apply]:
        """Return the nodes of a group, operands first."""
        return sorted(unit.members, key=self._place_of.__getitem__)

    def _place(self, node: Apply) -> None:
        """Let a node join groups of its users."""
        for unit, frame, between in self._users(node):
            if self._unit_of[node] is not unit and self._fits(node, unit, frame, between):
                self._join(node, unit, frame, between)

    def _users(self, node: Apply) -> list[tuple[FusionUnit, Frame, list[Apply]]]:
        """Return the groups that use a node, how they see it, and the DimShuffles between."""
        found: dict[tuple[int, Frame], tuple[FusionUnit, Frame, list[Apply]]] = {}
        for out in node.outputs:
            for client, _ in clients(self._fgraph, out):
                if is_output(client):
                    continue
                for unit, frame, between in self._seen_by(client):
                    entry = found.setdefault((id(unit), frame), (unit, frame, []))
                    entry[2].extend(between)
        return list(found.values())

    def _seen_by(self, client: Apply) -> list[tuple[FusionUnit, Frame, list[Apply]]]:
        unit = self._unit_of[client]
        if client in unit.members:
            return [(unit, unit.members[client], [])]
        if type(client.op) is not OpenCLDimShuffle:
            return []
        # It is seen through, if all see it from one group, and in one frame.
        (out,) = client.outputs
        seen: dict[tuple[int, Frame], tuple[FusionUnit, Frame, list[Apply]]] = {}
        for user, _ in clients(self._fgraph, out):
            own = None if is_output(user) else self._unit_of[user]
            if own is None or user not in own.members:
                return []
            frame = through(own.members[user], client.op.new_order)
            seen[id(own), frame] = (own, frame, [client])
        return list(seen.values()) if len(seen) == 1 else []

    def _fits(self, node: Apply, unit: FusionUnit, frame: Frame, between: list[Apply]) -> bool:
        """Tell whether a node may join a group, as far as it is not about the order."""
        own = self._unit_of[node]
        out = node.outputs[0]
        if own.context_name != unit.context_name or not _has_room(unit, own):
            return False
        if any(other != frame for var, other in unit.inputs if var.owner is node):
            return False
        if frame == identity(out.type.ndim) and own.pattern == unit.pattern:
            return True
        if len(own.members) > 1 or len(node.outputs) > 1 or self._is_wanted_outside(node, unit, between):
            return False
        here = pattern(out, frame)
        return here == unit.pattern or all(here) or is_cheap(node)

    def _is_wanted_outside(self, node: Apply, unit: FusionUnit, between: list[Apply]) -> bool:
        return any(
            is_output(client) or (client not in unit.members and client not in between)
            for out in node.outputs
            for client, _ in clients(self._fgraph, out)
        )

    def _join(self, node: Apply, unit: FusionUnit, frame: Frame, between: list[Apply]) -> None:
        own = self._unit_of[node]
        for view in between:
            if not self._merge(self._unit_of[view], unit):
                return
            self._unit_of[view] = unit
        if not self._merge(own, unit):
            return
        through_views = {out for view in between for out in view.outputs}
        unit.inputs = {(var, seen) for var, seen in unit.inputs if var not in through_views and var.owner is not node}
        if len(own.members) == 1:
            unit.members[node] = frame
            unit.inputs |= {(var, frame) for var in node.inputs}
        else:
            unit.members.update(own.members)
            unit.inputs |= own.inputs
        self._unit_of.update(dict.fromkeys(own.members, unit))
        unit.inputs = {(var, seen) for var, seen in unit.inputs if var.owner is None or var.owner not in unit.members}
        unit.steps += own.steps
        unit.wanted += sum(self._is_wanted_outside(member, unit, between) for member in own.members)

    def _merge(self, one: FusionUnit, other: FusionUnit) -> bool:
        """Let two units stand at the place of the later one, unless a path leads from one to the other by a third."""
        if one is other:
            return True
        if self._order.precedes(other, one):
            one, other, swapped = other, one, True
        else:
            swapped = False
        for user in one.behind:
            if user is not other and not self._order.put_behind(user, (other,)):
                return False
        kept, gone = (one, other) if swapped else (other, one)
        self._contract(gone, kept, place_of=other)
        return True

    def _contract(self, gone: FusionUnit, kept: FusionUnit, place_of: FusionUnit) -> None:
        if place_of is not kept:
            # The one that stays takes over the later place.
            self._order.remove(kept)
            place = self._order.place_of.pop(gone)
            place.node = kept
            self._order.place_of[kept] = place
        else:
            self._order.remove(gone)
        for near, far in (("before", "behind"), ("behind", "before")):
            for unit in getattr(gone, near):
                others = getattr(unit, far)
                others.discard(gone)
                if unit is not kept:
                    others.add(kept)
            setattr(kept, near, (getattr(kept, near) | getattr(gone, near)) - {gone, kept})


def _has_room(unit: FusionUnit, own: FusionUnit) -> bool:
    """Tell whether a kernel of both would not be too large."""
    if unit.steps + own.steps > MOST_STEPS:
        return False
    ndim = max(len(unit.pattern), 1)
    inputs = [var for var, _ in unit.inputs | own.inputs if not isinstance(var, Constant)]
    arrays = len(inputs) + unit.wanted + own.wanted
    return argument_bytes(ndim, arrays) <= _limit(unit)


def argument_bytes(ndim: int, arrays: int) -> int:
    """Return how many bytes the arguments of a kernel for so many arrays take, at most."""
    return 8 * (2 + ndim) + arrays * (16 + 8 * ndim)


def _limit(unit: FusionUnit) -> int:
    some = next(iter(unit.members))
    kind: OpenCLArrayType = some.outputs[0].type
    return kind.context.profile.max_parameter_bytes


def is_cheap(node: Apply, besides: frozenset[type] = frozenset()) -> bool:
    """Tell whether an elementwise op costs no more than to read a value, but for ops that are named besides."""
    op = node.op.scalar_op
    ops: list[Any] = [op]
    if isinstance(op, Program):
        ops = [step for step, _ in op.steps]
    elif isinstance(op, scalars.Composite):
        ops = [inner.op for inner in op.fgraph.apply_nodes]
    return all(type(step) in _CHEAP or type(step) in besides for step in ops)

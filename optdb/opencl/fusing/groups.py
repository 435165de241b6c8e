"""Which nodes become one kernel.

Outputs towards inputs, a node joins a group of its users. What it computes may be wanted
elsewhere, too: then the kernel has one more output. Two groups that use one value become one.
DimShuffles between members are seen through.

No path may leave a group and come back. So the groups, with each other node for itself, are
kept in a topological order, as Pearce and Kelly do (see :mod:`optdb.topo.order`): to join, the
other users of a node have to find places behind the group. Nothing is computed twice, and what
is expensive is not computed for more elements than before.

A frame says how an array is seen from a kernel that goes over a shape of other axes. It has an entry for each axis of
the kernel: the array's own axis, or ``'x'`` where the array is the same all along. A DimShuffle's ``new_order`` is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from optdb.host import scalars
from optdb.host.graph import Apply, Constant, FunctionGraph, Variable, clients, is_output
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.views import OpenCLDimShuffle
from optdb.opencl.scalars.program import Program
from optdb.opencl.type import OpenCLArrayType
from optdb.topo.order import TopologicalOrder

Frame = tuple[int | str, ...]

#: So many scalar ops are put in one kernel: more take long to compile, and find no registers.
MOST_STEPS = 80

#: Costs no more than to read a value: may be computed for each element anew.
_CHEAP = {
    *(scalars.Add, scalars.Mul, scalars.Sub, scalars.Neg, scalars.Sqr, scalars.Cast, scalars.Identity, scalars.Second),
    *(scalars.EQ, scalars.NEQ, scalars.LT, scalars.LE, scalars.GT, scalars.GE, scalars.Switch),
    *(scalars.Maximum, scalars.Minimum, scalars.Abs),
}


def identity(ndim: int) -> Frame:
    """Return the frame of an array of the kernel's own axes."""
    return tuple(range(ndim))


def through(frame: Frame, new_order: Sequence[int | str]) -> Frame:
    """Return how the input of a DimShuffle is seen where its output is seen by `frame`."""
    return tuple("x" if axis == "x" else new_order[axis] for axis in frame)


def seen_through(var: Variable, frame: Frame) -> tuple[Variable, Frame]:
    """Return what an array is a DimShuffle of, and how that is seen where the array is seen by `frame`."""
    while var.owner is not None and type(var.owner.op) is OpenCLDimShuffle:
        frame = through(frame, var.owner.op.new_order)
        (var,) = var.owner.inputs
    return var, frame


def pattern(var: Variable, frame: Frame) -> tuple[bool, ...]:
    """Return along which axes of the kernel an array is known to be the same."""
    return tuple(axis == "x" or var.type.broadcastable[axis] for axis in frame)


def seen(var: Variable, frame: Frame) -> Variable:
    """Return an array as it is seen by `frame`: itself, or a view."""
    if frame == identity(var.type.ndim):
        return var
    return OpenCLDimShuffle(var.type.broadcastable, frame)(var)


class FusionUnit:
    """A node, or the nodes of a group: what stands at one place of the order."""

    __slots__ = ("before", "behind", "context_name", "frame_of", "inputs", "members", "pattern", "steps", "wanted")

    def __init__(self, node: Apply) -> None:
        #: The frame of each node.
        self.members: dict[Apply, Frame] = {}
        #: What it depends on, and what depends on it.
        self.before: set[FusionUnit] = set()
        self.behind: set[FusionUnit] = set()
        if not can_fuse(node):
            return
        out = node.outputs[0]
        self.context_name = out.type.context_name
        self.pattern = out.type.broadcastable
        self.members[node] = identity(out.type.ndim)
        self.inputs = {(x, self.members[node]) for x in node.inputs}
        self.steps = len(_scalar_ops(node))
        self.wanted = len(node.outputs)


def can_fuse(node: Apply) -> bool:
    """Tell whether a node may be in a group."""
    return type(node.op) is OpenCLElemwise and not node.op.inplace_pattern


def _scalar_ops(node: Apply) -> list[Any]:
    """Return the scalar ops that an elementwise op is made of."""
    op = node.op.scalar_op
    if isinstance(op, Program):
        return [step for step, _ in op.steps]
    return [inner.op for inner in op.fgraph.apply_nodes] if isinstance(op, scalars.Composite) else [op]


class FusionGroups:
    """The groups of a graph."""

    def __init__(self, fgraph: FunctionGraph) -> None:
        self._fgraph = fgraph
        self._order = TopologicalOrder(lambda unit: unit.before, lambda unit: unit.behind)
        nodes = fgraph.toposort()
        self._place_of = {node: i for i, node in enumerate(nodes)}
        self._unit_of = {node: FusionUnit(node) for node in nodes}
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
        return iter(dict.fromkeys(unit for unit in self._unit_of.values() if unit.members))

    def in_order(self, unit: FusionUnit) -> list[Apply]:
        """Return the nodes of a group, operands first."""
        return sorted(unit.members, key=self._place_of.__getitem__)

    def _place(self, node: Apply) -> None:
        """Let a node join groups of its users."""
        for (unit, frame), between in self._users(node).items():
            if self._unit_of[node] is not unit and self._fits(node, unit, frame, between):
                self._join(node, unit, frame, between)

    def _users(self, node: Apply) -> dict[tuple[FusionUnit, Frame], list[Apply]]:
        """Return the groups that use a node and how they see it, with the DimShuffles between."""
        found: dict[tuple[FusionUnit, Frame], list[Apply]] = {}
        for out in node.outputs:
            for client, _ in clients(self._fgraph, out):
                use = None if is_output(client) else self._seen_by(client)
                if use is not None:
                    found.setdefault(use, []).extend(() if client in use[0].members else (client,))
        return found

    def _seen_by(self, client: Apply) -> tuple[FusionUnit, Frame] | None:
        """Return the only group that sees what a node uses, and how; a DimShuffle is seen through."""
        unit = self._unit_of[client]
        if client in unit.members:
            return unit, unit.members[client]
        if type(client.op) is not OpenCLDimShuffle:
            return None
        seen = set()
        for user, _ in clients(self._fgraph, client.outputs[0]):
            if is_output(user) or user not in self._unit_of[user].members:
                return None
            unit = self._unit_of[user]
            seen.add((unit, through(unit.members[user], client.op.new_order)))
        return seen.pop() if len(seen) == 1 else None

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
        is_alone = len(own.members) == 1
        unit.members.update({node: frame} if is_alone else own.members)
        self._unit_of.update(dict.fromkeys(own.members, unit))
        inside = {*unit.members, *between}
        inputs = unit.inputs | ({(var, frame) for var in node.inputs} if is_alone else own.inputs)
        unit.inputs = {(var, seen) for var, seen in inputs if var.owner not in inside}
        unit.steps += own.steps
        unit.wanted += sum(self._is_wanted_outside(member, unit, between) for member in own.members)

    def _merge(self, gone: FusionUnit, kept: FusionUnit) -> bool:
        """Let two units stand at the place of the later one, unless a path leads from one to the other by a third."""
        if gone is kept:
            return True
        first, later = (kept, gone) if self._order.precedes(kept, gone) else (gone, kept)
        for user in first.behind:
            if user is not later and not self._order.put_after(user, (later,)):
                return False
        self._contract(gone, kept, place_of=later)
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
    kind: OpenCLArrayType = next(iter(unit.members)).outputs[0].type
    return argument_bytes(ndim, arrays) <= kind.context.profile.max_parameter_bytes


def argument_bytes(ndim: int, arrays: int) -> int:
    """Return how many bytes the arguments of a kernel for so many arrays take, at most."""
    return 8 * (2 + ndim) + arrays * (16 + 8 * ndim)


def is_cheap(node: Apply, besides: frozenset[type] = frozenset()) -> bool:
    """Tell whether an elementwise op costs no more than to read a value, but for ops that are named besides."""
    return all(type(op) in _CHEAP or type(op) in besides for op in _scalar_ops(node))

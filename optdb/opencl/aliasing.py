"""Alias analysis: finds which variables in a graph may share memory, through views (``view_map``) and in-place ops."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from optdb.host.api.graph import Apply, Variable, reachable
from optdb.host.api.slots import destroyed_slots, viewed_slots


def memory_of(var: Variable) -> list[Variable]:
    """Return the inputs whose memory a variable may share because its node views or overwrites them."""
    node = var.owner
    if node is None:
        return []
    maps = (getattr(node.op, name, None) or {} for name in ("view_map", "destroy_map"))
    return [node.inputs[slot] for slots in maps for slot in slots.get(var.index, ())]


def may_lie_in(*variables: Variable) -> set[Variable]:
    """Return the given variables and all variables whose memory they may share through any number of nodes."""
    return set(reachable(variables, memory_of))


def view_root(var: Variable) -> Variable:
    """Return the variable that a chain of views starts from; return a variable that is not a view unchanged."""
    while var.owner is not None:
        slots = (getattr(var.owner.op, "view_map", None) or {}).get(var.index)
        if not slots:
            return var
        var = var.owner.inputs[slots[0]]
    return var


def overwriting(order: Iterable[Apply], protected: Iterable[Variable]) -> list[Apply]:
    """Return the nodes, in topological order, that overwrite protected variables or views of them.

    Nodes that overwrite the results of the returned nodes are not included, since they run later.
    """
    aliases = set(protected)
    nodes = []
    for node in order:
        aliases.update(out for out, slot in viewed_slots(node) if node.inputs[slot] in aliases)
        if any(node.inputs[slot] in aliases for slot in destroyed_slots(node)):
            nodes.append(node)
    return nodes


class AliasSets:
    """The variables of the given nodes, in sets of variables that may share memory with each other.

    `overwrites` returns whether a node works in place when it runs; by default, all nodes whose op has a
    ``destroy_map`` work in place.
    """

    def __init__(self, nodes: Sequence[Apply], overwrites: Callable[[Apply], object] = destroyed_slots) -> None:
        self.overwritten: set[Variable] = set()
        self._neighbours: dict[Variable, list[Variable]] = defaultdict(list)
        for node in nodes:
            pairs = viewed_slots(node)
            if overwrites(node):
                self.overwritten.update(node.inputs[slot] for slot in destroyed_slots(node))
                pairs += [(node.outputs[out], slot) for out, slots in node.op.destroy_map.items() for slot in slots]
            for out, slot in pairs:
                self._neighbours[out].append(node.inputs[slot])
                self._neighbours[node.inputs[slot]].append(out)

    def of(self, variables: Iterable[Variable]) -> set[Variable]:
        """Return `variables` and all variables that may share memory with any of them."""
        return set(reachable(variables, lambda var: self._neighbours.get(var, ())))

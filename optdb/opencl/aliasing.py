"""Aliasing: which variables of a graph may share memory.

A node shares memory between variables in two ways: an output is a view of an input (``view_map``), or the node works in
place and writes an output over an input (``destroy_map``). All questions about whether values may share memory are
answered by this module:

- `memory_of`, `may_lie_in` and `view_root` follow one variable back to the variables whose memory it may share.
- `AliasSets` holds the sets of variables that may share memory; `exposed_variables` returns those whose memory is
  visible outside the nodes that read them, or overwritten.
- `overwriting` finds the nodes that overwrite protected variables, such as the inputs of a function.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from optdb.host.api.graph import Apply, Variable, reachable
from optdb.host.api.slots import destroyed_slots, viewed_slots

__all__ = [
    "AliasSets",
    "exposed_variables",
    "may_lie_in",
    "memory_of",
    "overwriting",
    "view_root",
]


def memory_of(var: Variable) -> list[Variable]:
    """Return the inputs of a variable's node whose memory it may share: it is a view of them, or overwrites them."""
    node = var.owner
    if node is None:
        return []
    maps = (getattr(node.op, name, None) or {} for name in ("view_map", "destroy_map"))
    return [node.inputs[slot] for slots in maps for slot in slots.get(var.index, ())]


def may_lie_in(*variables: Variable) -> set[Variable]:
    """Return the variables whose memory the given ones may share through any number of nodes, themselves included."""
    return set(reachable(variables, memory_of))


def view_root(var: Variable) -> Variable:
    """Return the base variable of a variable, through any chain of views; itself if it is not a view."""
    while var.owner is not None:
        slots = (getattr(var.owner.op, "view_map", None) or {}).get(var.index)
        if not slots:
            return var
        var = var.owner.inputs[slots[0]]
    return var


def overwriting(order: Iterable[Apply], protected: Iterable[Variable]) -> list[Apply]:
    """Return the nodes that overwrite protected variables, or views of them.

    A node that overwrites the result of such a node is not included, since it runs later.

    Parameters
    ----------
    order : iterable of Apply
        The nodes, in topological order.
    protected : iterable of Variable
        The protected variables, such as the inputs of a function.
    """
    aliases = set(protected)
    nodes = []
    for node in order:
        aliases.update(out for out, slot in viewed_slots(node) if node.inputs[slot] in aliases)
        if any(node.inputs[slot] in aliases for slot in destroyed_slots(node)):
            nodes.append(node)
    return nodes


class AliasSets:
    """The sets of variables of some nodes that may share memory.

    Parameters
    ----------
    nodes : sequence of Apply
        The nodes, in any order.
    overwrites : callable
        Predicate: whether a node works in place when it runs. By default, whether its op has a ``destroy_map``.
    """

    def __init__(self, nodes: Sequence[Apply], overwrites: Callable[[Apply], object] = destroyed_slots) -> None:
        #: The inputs that nodes overwrite.
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
        """Return all variables that may share memory with any of `variables`, including these."""
        return set(reachable(variables, lambda var: self._neighbours.get(var, ())))


def exposed_variables(
    nodes: Sequence[Apply],
    inputs: Iterable[Variable],
    outputs: Iterable[Variable],
    overwrites: Callable[[Apply], object] = destroyed_slots,
) -> set[Variable]:
    """Return the variables whose memory is visible outside the function's nodes, or that a node overwrites.

    These are the inputs, whose memory belongs to the caller or to a shared variable; the outputs and next values, which
    the caller receives, and whose cells are emptied before each call; the inputs that nodes overwrite in place; and all
    variables that may share memory with one of these. `overwrites` is as for `AliasSets`.
    """
    sets = AliasSets(nodes, overwrites)
    return sets.of([*inputs, *outputs, *sets.overwritten])

"""Aliasing: which variables of a graph may share memory.

A node shares memory between variables in two ways: an output is a view of an input (``view_map``), or the node works in
place and writes an output over an input (``destroy_map``). All that asks whether two values may share memory asks this
module:

- `memory_of`, `may_lie_in` and `view_root` follow one variable back to the memory that its value may lie in.
- `AliasSets` has the sets of variables that may share memory; `exposed_variables` are those whose memory is seen, or
  changed, by others than the nodes that read them.
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
    """Return the inputs of a variable's node in whose memory it may lie: it is a view of them, or overwrites them."""
    node = var.owner
    if node is None:
        return []
    maps = (getattr(node.op, name, None) or {} for name in ("view_map", "destroy_map"))
    return [node.inputs[slot] for slots in maps for slot in slots.get(var.index, ())]


def may_lie_in(*variables: Variable) -> set[Variable]:
    """Return the variables in whose memory values may lie, themselves among them, by way of any number of nodes."""
    return set(reachable(variables, memory_of))


def view_root(var: Variable) -> Variable:
    """Return the variable that a variable is a view of, through all views; itself, if it is none."""
    while var.owner is not None:
        slots = (getattr(var.owner.op, "view_map", None) or {}).get(var.index)
        if not slots:
            return var
        var = var.owner.inputs[slots[0]]
    return var


def overwriting(order: Iterable[Apply], protected: Iterable[Variable]) -> list[Apply]:
    """Return the nodes that overwrite protected variables, or views of them.

    A node that overwrites the result of such a node is not among them: it runs after it.

    Parameters
    ----------
    order : iterable of Apply
        In topological order.
    protected : iterable of Variable
        Such as the inputs of a function.
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
        In any order.
    overwrites : callable
        Tells whether a node works in place as it is computed; by default, whether the graph lets it.
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
        """Return all variables that may share memory with one of some variables; these are among them."""
        return set(reachable(variables, lambda var: self._neighbours.get(var, ())))


def exposed_variables(
    nodes: Sequence[Apply],
    inputs: Iterable[Variable],
    outputs: Iterable[Variable],
    overwrites: Callable[[Apply], object] = destroyed_slots,
) -> set[Variable]:
    """Return the variables whose memory is seen outside of the function's nodes, or that a node overwrites.

    These are the inputs, whose memory is the caller's or a shared variable's; the outputs and next values, which the
    caller gets, and whose cells are emptied before each call; the inputs that nodes overwrite in place; and all
    variables that may share memory with one of these. `overwrites` is as for `AliasSets`.
    """
    sets = AliasSets(nodes, overwrites)
    return sets.of([*inputs, *outputs, *sets.overwritten])

"""Which variables of a function may share memory on the host, and whose memory is not the plan's alone.

A plan keeps what a node has left on the host from one call to the next, and then skips the node. That is right only
while nobody else can write there or take it away. So there is one rule: **a plan owns a value of the host only if no
variable of its alias class is seen outside of the nodes that read it**. An alias class is exposed if one of its
variables

- is an input of the function, whose memory is the caller's or a shared variable's;
- is an output or the next value of an input, which the caller gets, and whose cell is emptied before each call;
- is overwritten by a node that works in place.

A node that gives a value of an exposed class computes at each call (``roles``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from optdb.host.destroy import destroyed_slots, viewed_slots
from optdb.host.graph import Apply, Variable

__all__ = ["AliasClasses", "exposed_variables"]


class AliasClasses:
    """Variables that may share memory, as the views and in-place nodes of a graph tell (a union-find structure)."""

    def __init__(self) -> None:
        self._parents: dict[Variable, Variable] = {}

    def find(self, var: Variable) -> Variable:
        """Return the variable that stands for the alias class of another one."""
        root = var
        while (parent := self._parents.get(root, root)) is not root:
            root = parent
        while var is not root:  # the next search is shorter
            self._parents[var], var = root, self._parents[var]
        return root

    def unite(self, one: Variable, other: Variable) -> None:
        """Take note that two variables may share memory."""
        one, other = self.find(one), self.find(other)
        if one is not other:
            self._parents[other] = one


def exposed_variables(
    nodes: Sequence[Apply],
    inputs: Iterable[Variable],
    outputs: Iterable[Variable],
    overwrites: Callable[[Apply], object] = destroyed_slots,
) -> set[Variable]:
    """Find the variables whose memory others than the function's nodes see, or that a node overwrites.

    Parameters
    ----------
    nodes : sequence of Apply
        Of the function.
    inputs, outputs : iterable of Variable
        Of the function; next values are among the outputs.
    overwrites : callable
        Whether a node works in place as it is computed; by default, whether the graph lets it.
    """
    classes = AliasClasses()
    exposed = {*inputs, *outputs}
    for node in nodes:
        for out, slot in viewed_slots(node):
            classes.unite(node.inputs[slot], out)
        if not overwrites(node):
            continue
        for out, slots in node.op.destroy_map.items():
            for slot in slots:
                classes.unite(node.inputs[slot], node.outputs[out])
        exposed.update(node.inputs[slot] for slot in destroyed_slots(node))
    roots = {classes.find(var) for var in exposed}
    found = {var for node in nodes for var in (*node.inputs, *node.outputs) if classes.find(var) in roots}
    return exposed | found

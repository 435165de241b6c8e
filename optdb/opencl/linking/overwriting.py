"""Decides which nodes may overwrite state, so that a call that raises changes no shared variable.

The state consists of the inputs that have a next value. The planned VM holds back the commands of nodes that overwrite
state until none of the remaining nodes can raise. Nodes that would overwrite state too early are replaced. Theano's own
VMs do not hold back commands; with these VMs, only a device op that runs last may overwrite state, and only if it
overwrites all the state.
"""

from __future__ import annotations

from optdb.host.api.graph import Apply, FunctionGraph, Variable, reachable
from optdb.host.api.ops import Rebroadcast
from optdb.host.api.slots import destroyed_slots
from optdb.host.api.testvalues import without_test_values
from optdb.host.api.user_inplace import is_overwritten_by_user
from optdb.host.theano.functions.optimized import change_output, plain_outputs, replace_in_linked
from optdb.opencl.aliasing import may_lie_in, overwriting
from optdb.opencl.linking.nodes import enqueues_at_end, may_be_held
from optdb.opencl.linking.waiting import has_waits, waits_late
from optdb.opencl.rewriters.inplace import PLAIN


def state_of(fgraph: FunctionGraph) -> set[Variable]:
    """Return the inputs with a next value (all inputs of a copied graph), except those that a user's op overwrites."""
    mapping = getattr(fgraph, "update_mapping", None)
    inputs = fgraph.inputs if mapping is None else [fgraph.inputs[number] for number in mapping.values()]
    return {var for var in inputs if not is_overwritten_by_user(var)}


def final_last(fgraph: FunctionGraph, state: set[Variable]) -> list[Apply]:
    """Order nodes: those that overwrite state run last if possible, and those that wait run late (see `waiting`)."""
    order = _NodeOrder(fgraph, state)
    nodes = waits_late(order.nodes, order.prior) if has_waits(order.nodes) else order.nodes
    return sorted(nodes, key=order.late.__contains__)


def overwrites_state(fgraph: FunctionGraph, state: set[Variable]) -> bool:
    """Return whether a node overwrites state."""
    return bool(overwriting(fgraph.toposort(), state))


def endangered(fgraph: FunctionGraph, state: set[Variable]) -> set[Variable]:
    """Return the state that nodes overwrite too early, because their commands or later commands cannot be held back."""
    slots = ((node, slot) for node in _NodeOrder(fgraph, state).unheld() for slot in destroyed_slots(node))
    return state & may_lie_in(*[node.inputs[slot] for node, slot in slots])


@without_test_values()
def keep_state(fgraph: FunctionGraph, state: set[Variable], holds: bool) -> dict[Variable, Variable]:
    """Replace nodes that could leave the state partly changed if a call raises.

    `holds` says whether the VM runs the nodes in the order of `final_last` and holds back commands. Return a map from
    the outputs of replaced nodes to their replacements.
    """
    order = _NodeOrder(fgraph, state)
    exchanged: dict[Variable, Variable] = {}
    for node in order.unheld() if holds else order.unordered():
        pairs = list(zip(node.outputs, plain_outputs(node, PLAIN), strict=True))
        replace_in_linked(fgraph, pairs, reason="a call that raises changes no state")
        exchanged.update(pairs)
    return exchanged


@without_test_values()
def check_next_values(fgraph: FunctionGraph) -> dict[Variable, Variable]:
    """Add nodes that check the lengths of next values against their types before Theano's VM stores any of them.

    Return a map from each checked next value to the variable that is stored instead.
    """
    checked: dict[Variable, Variable] = {}
    for index in getattr(fgraph, "update_mapping", None) or {}:
        var = fgraph.outputs[index]
        axes = [axis for axis, is_one in enumerate(getattr(var.type, "broadcastable", ())) if is_one]
        if axes and not (var.owner is not None and isinstance(var.owner.op, Rebroadcast)):
            checked.setdefault(var, Rebroadcast(*[(axis, True) for axis in axes])(var))
            change_output(fgraph, index, checked[var], reason="the length of an updated value")
    return checked


class _NodeOrder:
    """The nodes that overwrite state in a graph, and the nodes that must run after them."""

    def __init__(self, fgraph: FunctionGraph, state: set[Variable]) -> None:
        self.nodes = fgraph.toposort()
        self._state = state
        self._overwriting = overwriting(self.nodes, state)
        self._before = fgraph.orderings() if self._overwriting or has_waits(self.nodes) else {}
        #: The nodes that overwrite state, and the nodes that must run after them.
        self.late = set(self._overwriting)
        for node in self.nodes if self.late else ():
            if not self.late.isdisjoint(self.prior(node)):
                self.late.add(node)

    def unheld(self) -> list[Apply]:
        """Return the nodes that overwrite state too early, because they or later nodes cannot be held back."""
        blocking = [node for node in self.nodes if node in self.late and not may_be_held(node)]
        reached = reachable(blocking, self.prior)
        return [node for node in self._overwriting if node in reached]

    def unordered(self) -> list[Apply]:
        """Return the nodes that overwrite state, or an empty list if the last node alone overwrites all the state."""
        nodes = self._overwriting
        if len(nodes) != 1 or not enqueues_at_end(nodes[0]):
            return nodes
        overwritten = may_lie_in(*[nodes[0].inputs[slot] for slot in destroyed_slots(nodes[0])])
        runs_last = len(reachable(nodes, self.prior)) == len(self.nodes)
        return [] if runs_last and self._state <= overwritten else nodes

    def prior(self, node: Apply) -> list[Apply]:
        owners = (var.owner for var in node.inputs if var.owner is not None)
        return [*owners, *self._before.get(node, ())]

"""The placement of a graph's nodes, decided before the lifted graph is built.

Three passes over the nodes in topological order::

    forward    a node runs where its inputs are, if it has a lifter
    backward   a node whose users are all on a device also runs there, and source
               ops run where their results are used
    partitions sets of nodes change sides (see ``optdb.lifters.partitioning``)

The passes that place nodes call only the predicates of lifters. A lifter may later reject a node, which then stays on
the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from optdb.host.api.graph import Apply, Constant, FunctionGraph, Variable, clients, is_output
from optdb.host.api.user_inplace import is_overwritten_by_user, nodes_in_place
from optdb.host.api.variables import is_host_array
from optdb.lifters.device import ContextName, Device, transfer_context
from optdb.lifters.lifter import Lifter

NO_INPUT = "no input is on the device"
NO_LIFTER = "no lifter"
PARTITION = "partition: its transfers would take longer than the device saves"
USER_INPLACE = "the user's op overwrites an argument, which is on the host"

_HOST = object()


class Placement:
    """The placement of the nodes and variables of one graph.

    Parameters
    ----------
    fgraph : FunctionGraph
        The graph to lift; it is not changed.
    device : Device
        The device to lift to.
    lifters : mapping
        The lifters of each op class or instance, in order of precedence.
    nodes : sequence of Apply
        The graph's nodes in topological order.

    Attributes
    ----------
    contexts, moved : dict
        The context names of the nodes on the device, and of the graph inputs that move there.
    reasons : dict
        The reason for each node that stays on the host.
    default : str or None
        Name of the default context; None if there is none.
    """

    def __init__(
        self, fgraph: FunctionGraph, device: Device, lifters: dict[Any, list[Lifter]], nodes: Sequence[Apply]
    ) -> None:
        self.fgraph = fgraph
        self.device = device
        self.nodes = nodes
        self.contexts: dict[Apply, ContextName] = {}
        self.moved: dict[Variable, ContextName] = {}
        self.reasons: dict[Apply, str] = {}
        self.willing: dict[Apply, Lifter] = {}
        self._lifters = lifters
        self._tracks_instances = any(not isinstance(key, type) for key in lifters)
        self.default = device.default_context()
        marked = filter(is_overwritten_by_user, fgraph.inputs)
        #: The in-place ops in the user's graph that overwrite the caller's arrays.
        self._in_place = {node for var in marked if not device.has(var) for node in nodes_in_place(fgraph, var)}
        self._refused: dict[tuple[str, ContextName], str | None] = {}
        #: Maps a host variable to the reason why one of its ancestors could not move to the device.
        self._unmoved: dict[Variable, str] = {}

    def make(self) -> Placement:
        """Place all nodes, and return the placement."""
        for var in self.fgraph.inputs:
            self._place_input(var)
        for node in self.nodes:
            self._forward(node)
        for node in reversed(self.nodes):
            self._backward(node)
        return self

    def candidates(self, node: Apply) -> list[Lifter]:
        """Return the lifters of a node: those for its op, then those for the op's class."""
        of_class = self._lifters.get(type(node.op), [])
        if not self._tracks_instances:
            return of_class
        try:
            return [*self._lifters.get(node.op, ()), *of_class]
        except TypeError:  # an unhashable op is not a key of the mapping
            return of_class

    def candidates_from(self, node: Apply, first: Lifter | None) -> list[Lifter]:
        """Return the lifters of a node from `first` on; lifters before `first` have rejected the node."""
        candidates = self.candidates(node)
        return candidates[candidates.index(first) :] if first in candidates else candidates

    def reason(self, node: Apply) -> str | None:
        """Return why a node, or one of its inputs, stays on the host."""
        reason = self.reasons.get(node)
        return self._unmoved.get(node.outputs[0], NO_INPUT) if reason == NO_INPUT else reason

    def context(self, var: Variable) -> Any:
        """Return the name of the context that `var` will be on; `_HOST` if it will be on the host."""
        if self.device.has(var):
            return var.type.context_name
        if var.owner is None:
            return self.moved.get(var, _HOST)
        if isinstance(var.owner.op, self.device.to_host):
            return self.context(var.owner.inputs[0])
        if isinstance(var.owner.op, self.device.host_result_ops):
            return _HOST
        return self.contexts.get(var.owner, _HOST)

    def on_host(self, var: Variable) -> bool:
        """Return whether `var` will be on the host."""
        return self.context(var) is _HOST

    def unwilling(self, node: Apply, context_name: ContextName) -> str | None:
        """Return why a node cannot run in a context; None if dtypes and predicates allow it."""
        candidates = self.candidates(node)
        if not candidates:
            return NO_LIFTER
        for var in (*node.inputs, *node.outputs):
            reason = self._unsupported_reason(var, context_name)
            if reason is not None:
                return reason
        reason = NO_LIFTER
        for lifter in candidates:
            declined = lifter.declines(node.op, context_name, node.inputs, node.outputs)
            if declined is None:
                self.willing[node] = lifter
                return None
            reason = declined.reason
        return reason

    def users(self, node: Apply) -> list[Apply | str]:
        """Return the users of a node's outputs."""
        return [client for out in node.outputs for client, _ in clients(self.fgraph, out)]

    def _unsupported_reason(self, var: Variable, context_name: ContextName) -> str | None:
        if not is_host_array(var):
            return None
        key = (var.type.dtype, context_name)
        if key not in self._refused:
            self._refused[key] = self.device.unsupported_reason(*key)
        return self._refused[key]

    def _place_input(self, var: Variable) -> None:
        if not self.device.moves(var):
            return
        target = getattr(var.tag, "target", None) or self.default
        if target is None:
            return
        reason = self._unsupported_reason(var, target)
        if reason is None:
            self.moved[var] = target
        else:
            self._unmoved[var] = reason

    def _forward(self, node: Apply) -> None:
        if isinstance(node.op, (self.device.to_host, self.device.from_host, self.device.between)):
            return
        if any(self.device.has(out) for out in node.outputs):
            return  # the user's own graph contains this device op
        if node in self._in_place:
            self.reasons[node] = USER_INPLACE
            return
        contexts = list(dict.fromkeys(c for c in map(self.context, node.inputs) if c is not _HOST))
        if not contexts:
            self.reasons[node] = NO_INPUT
            unmoved = [self._unmoved[var] for var in node.inputs if var in self._unmoved]
            self._unmoved.update(dict.fromkeys(node.outputs, unmoved[0]) if unmoved else {})
        elif len(contexts) > 1:
            self.reasons[node] = f"its inputs are in several contexts: {', '.join(map(repr, contexts))}"
        else:
            self._settle(node, contexts[0])

    def _settle(self, node: Apply, context_name: ContextName) -> None:
        reason = self.unwilling(node, context_name)
        if reason is None:
            self.put(node, context_name)
        else:
            self.reasons[node] = reason

    def put(self, node: Apply, context_name: ContextName) -> None:
        """Place a node on the device."""
        self.contexts[node] = context_name
        self.reasons.pop(node, None)

    def take_back(self, node: Apply, reason: str) -> None:
        """Place a node on the host."""
        self.contexts.pop(node, None)
        self.reasons[node] = reason

    def _backward(self, node: Apply) -> None:
        if self.reasons.get(node) != NO_INPUT:
            return
        wanted = self._wanted_in(node)
        if wanted is not _HOST:
            self._settle(node, wanted)

    def _wanted_in(self, node: Apply) -> Any:
        """Return the context in which all users expect a node's outputs; `_HOST` if there is no such context."""
        source = isinstance(node.op, self.device.source_ops)
        if not source and not all(map(self.device.moves, node.outputs)):
            return _HOST  # device ops can read sizes and indexes on the host
        contexts = [self._context_of_user(user, i) for out in node.outputs for user, i in clients(self.fgraph, out)]
        if source:
            contexts = [context for context in contexts if context is not _HOST]
        distinct = set(contexts)
        return contexts[0] if len(distinct) == 1 else _HOST

    def _context_of_user(self, user: Apply | str, i: int) -> Any:
        if is_output(user) or self.device.is_host_input(user.op, i):
            return _HOST
        if isinstance(user.op, (self.device.from_host, self.device.between)):
            return transfer_context(user.op)
        return self.contexts.get(user, _HOST)


def tracked(lifters: Iterable[Lifter]) -> dict[Any, list[Lifter]]:
    """Return the lifters, grouped by op class or instance, in the given order."""
    by_op: dict[Any, list[Lifter]] = {}
    for lifter in lifters:
        for op in lifter.tracks():
            by_op.setdefault(op, []).append(lifter)
    return by_op


def is_constant(var: Variable) -> bool:
    """Return whether a variable is a constant, which is copied instead of moved."""
    return isinstance(var, Constant)

"""The order of nodes where the host waits for the device: as much as possible is enqueued before.

An op with the attribute ``begins_wait`` lets a copy to the host begin, and one with ``ends_wait`` waits for it. Between
the two, the device should have other work. So nodes that lead to the next wait run first, and a wait runs when nothing
else is left that can run without it. In a net's backward pass, that is the gradient of a layer's weights while the host
waits for sums of the layer before.

An op with the attribute ``begins_copy`` lets a copy begin, too, that nothing in the graph waits for. Nodes that lead to
one go before others, but after those that lead to a wait.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence

from optdb.host.api.graph import Apply

__all__ = ["begins_copy", "has_waits", "waits_late"]


def has_waits(nodes: Iterable[Apply]) -> bool:
    """Tell whether the host waits for the device, or for copies, within a graph, by ops that say so."""
    return any(_ends_wait(node) or begins_copy(node) for node in nodes)


def waits_late(nodes: Sequence[Apply], prior: Callable[[Apply], Iterable[Apply]]) -> list[Apply]:
    """Return nodes in an order in which waits begin early, and end late.

    Parameters
    ----------
    nodes : sequence of Apply
        In an order in which they may run, which stays where nothing speaks against it.
    prior : callable
        Returns the nodes that have to run before one.
    """
    number = {node: i for i, node in enumerate(nodes)}
    before = [{number[other] for other in prior(node)} for node in nodes]
    after: list[list[int]] = [[] for _ in nodes]
    for i, others in enumerate(before):
        for other in others:
            after[other].append(i)
    urgency = _urgency(nodes, after)
    missing = [len(others) for others in before]
    ready = [(*urgency[i], i) for i in range(len(nodes)) if not missing[i]]
    heapq.heapify(ready)
    order = []
    while ready:
        *_, i = heapq.heappop(ready)
        order.append(nodes[i])
        for other in after[i]:
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(ready, (*urgency[other], other))
    return order


def _urgency(nodes: Sequence[Apply], after: Sequence[Sequence[int]]) -> list[tuple[bool, float]]:
    """Return for each node whether it is a wait, and then the first wait that it lets begin: least goes first.

    Copies come after all waits.
    """
    first = [math.inf] * len(nodes)
    for i in reversed(range(len(nodes))):
        beyond = min((first[other] for other in after[i] if not _ends_wait(nodes[other])), default=math.inf)
        first[i] = min(beyond, _turn(nodes[i], i, len(nodes)))
    return [(_ends_wait(node), first[i]) for i, node in enumerate(nodes)]


def _turn(node: Apply, number: int, count: int) -> float:
    """Return when it is the turn of what a node begins; infinity if it begins nothing."""
    if getattr(node.op, "begins_wait", False):
        return number
    return count + number if begins_copy(node) else math.inf


def _ends_wait(node: Apply) -> bool:
    return getattr(node.op, "ends_wait", False)


def begins_copy(node: Apply) -> bool:
    """Tell whether a node lets copies of its inputs begin."""
    return getattr(node.op, "begins_copy", False)

"""Orders nodes so that as much work as possible is enqueued before the host waits for the device.

An op with ``begins_wait`` starts a copy to the host, and an op with ``ends_wait`` waits for this copy. The ancestors of
a wait run first, then the ancestors of a copy without a wait (``begins_copy``), then other nodes. A node that waits
runs only when no other node can run.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence

from optdb.host.api.graph import Apply


def has_waits(nodes: Iterable[Apply]) -> bool:
    """Return whether any node waits for the device (``ends_wait``) or starts copies (``begins_copy``)."""
    return any(_ends_wait(node) or begins_copy(node) for node in nodes)


def waits_late(nodes: Sequence[Apply], prior: Callable[[Apply], Iterable[Apply]]) -> list[Apply]:
    """Reorder nodes to start copies to the host early and wait for them late; `prior` returns dependencies."""
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
    """Return each node's sort key: whether it ends a wait, and the rank of the first wait or copy that needs it."""
    first = [math.inf] * len(nodes)
    for i in reversed(range(len(nodes))):
        beyond = min((first[other] for other in after[i] if not _ends_wait(nodes[other])), default=math.inf)
        first[i] = min(beyond, _turn(nodes[i], i, len(nodes)))
    return [(_ends_wait(node), first[i]) for i, node in enumerate(nodes)]


def _turn(node: Apply, number: int, count: int) -> float:
    if getattr(node.op, "begins_wait", False):
        return number
    return count + number if begins_copy(node) else math.inf


def _ends_wait(node: Apply) -> bool:
    return getattr(node.op, "ends_wait", False)


def begins_copy(node: Apply) -> bool:
    """Return whether a node starts copies of its inputs."""
    return getattr(node.op, "begins_copy", False)

"""The nodes that are still to be visited, in topological order.

A cursor walks over the order from one end to the other and back, like an elevator. Nodes that are pushed ahead of the
cursor are popped on the same walk. A change that propagates from user to user crosses the whole graph in one walk
towards the outputs, but would advance by only one node in each walk towards the inputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from optdb.topo.order import Node, OrderPosition, TopologicalOrder

DIRECTIONS = ("out_to_in", "in_to_out")


class Worklist(Generic[Node]):
    """Nodes that are still to be visited; `pop` returns them on walks over the order, in alternating directions.

    Parameters
    ----------
    order : TopologicalOrder
        The order, which contains every pending node; its nodes may change at any time.
    direction : {'out_to_in', 'in_to_out'}
        The direction of the first walk: outputs first or inputs first.
    """

    def __init__(self, order: TopologicalOrder[Node], direction: str = "out_to_in") -> None:
        if direction not in DIRECTIONS:
            raise ValueError(f"direction must be one of {DIRECTIONS}, not {direction!r}")
        self.order = order
        self.outputs_first = direction == "out_to_in"
        self.pending: set[Node] = set()
        self.walks = 0
        self._cursor: OrderPosition[Node] | None = None

    def __len__(self) -> int:
        return len(self.pending)

    def __contains__(self, node: Node) -> bool:
        return node in self.pending

    def push(self, node: Node) -> None:
        """Mark `node` as pending."""
        self.pending.add(node)

    def extend(self, nodes: Iterable[Node]) -> None:
        """Mark all `nodes` as pending."""
        self.pending.update(nodes)

    def discard(self, node: Node) -> None:
        """Remove `node` if it is pending."""
        self.pending.discard(node)

    def pop(self) -> Node:
        """Remove and return the next pending node; raise IndexError if there is none."""
        pending = self.pending
        if not pending:
            raise IndexError("pop from an empty worklist")
        position = self._start() if self._cursor is None else self._cursor
        while True:
            following = position.prev if self.outputs_first else position.next
            position = self._start() if following is position else following
            node = position.node
            if node is not None and node in pending:
                pending.remove(node)
                self._cursor = position
                return node

    def _start(self) -> OrderPosition[Node]:
        if self.walks:
            self.outputs_first = not self.outputs_first
        self.walks += 1
        return self.order.tail if self.outputs_first else self.order.head

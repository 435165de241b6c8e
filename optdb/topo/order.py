"""An incremental topological order, maintained while its graph changes.

The order is a doubly linked list of positions with increasing integer labels:

* a new node is inserted right after its last dependency; if there is no free label, a part of the list is relabelled
  (Dietz and Sleator, "Two algorithms for maintaining order in a list", STOC 1987);
* if a new edge violates the order, a search starts from each end of the edge (Pearce and Kelly, "A dynamic topological
  sort algorithm for directed acyclic graphs", ACM JEA 11, 2006). Only the nodes found by the search that finishes first
  are moved. If the searches meet, the edge would close a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Generic, TypeVar

Node = TypeVar("Node", bound=Hashable)

_GAP = 1 << 40
_by_label = attrgetter("label")


class OrderPosition(Generic[Node]):
    """One position in a topological order.

    If the position's node was removed, `node` is None, and the links remain, so that a cursor at this position can
    move on. Each end of the list is linked to itself.
    """

    __slots__ = ("label", "next", "node", "prev")

    def __init__(self, node: Node | None, label: float) -> None:
        self.node = node
        self.label = label
        self.prev = self.next = self


class _Front(Generic[Node]):
    """A search from one end of a window of labels; it first visits the nodes nearest to the opposite end.

    Both bounds of the window are checked: an edge that the order has refused may still be in the graph, and may lead
    back beyond the start of the search.
    """

    def __init__(
        self,
        start: Iterable[Node],
        neighbours: Callable[[Node], Iterable[Node]],
        position_of: dict[Node, OrderPosition[Node]],
        window: tuple[float, float],
        nearest: int,
    ) -> None:
        self.found = set(start)
        self.todo = [(nearest * position_of[node].label, i, node) for i, node in enumerate(self.found)]
        heapify(self.todo)
        self._neighbours = neighbours
        self._position_of = position_of
        self._window = window
        self._nearest = nearest

    def meets(self, other: _Front[Node]) -> bool:
        """Follow the edges of one node; return whether an edge leads to a node that the other search has found."""
        lower, upper = self._window
        for node in self._neighbours(heappop(self.todo)[2]):
            if node in other.found:
                return True
            position = self._position_of.get(node)
            if position is not None and node not in self.found and lower <= position.label <= upper:
                self.found.add(node)
                heappush(self.todo, (self._nearest * position.label, len(self.found), node))
        return False


class TopologicalOrder(Generic[Node]):
    """Nodes in an order in which each node comes after its dependencies.

    Parameters
    ----------
    dependencies, dependents : callable
        Return a node's dependencies or dependents in the current graph. The order itself stores no edges.

    Notes
    -----
    Invariants: ``position_of`` holds one live position per node; labels are strictly increasing along the list; for
    each reported edge, the dependency has the smaller label.
    """

    def __init__(
        self, dependencies: Callable[[Node], Iterable[Node]], dependents: Callable[[Node], Iterable[Node]]
    ) -> None:
        self._dependencies = dependencies
        self._dependents = dependents
        self.position_of: dict[Node, OrderPosition[Node]] = {}
        self.head: OrderPosition[Node] = OrderPosition(None, -1)
        self.tail: OrderPosition[Node] = OrderPosition(None, float("inf"))
        self.head.next = self.tail
        self.tail.prev = self.head

    def __len__(self) -> int:
        return len(self.position_of)

    def __contains__(self, node: Node) -> bool:
        return node in self.position_of

    def __iter__(self) -> Iterator[Node]:
        position = self.head.next
        while position is not self.tail:
            if position.node is not None:
                yield position.node
            position = position.next

    def __reversed__(self) -> Iterator[Node]:
        position = self.tail.prev
        while position is not self.head:
            if position.node is not None:
                yield position.node
            position = position.prev

    def precedes(self, first: Node, second: Node) -> bool:
        """Return whether `first` comes before `second`."""
        return self.position_of[first].label < self.position_of[second].label

    def extend(self, nodes: Iterable[Node]) -> None:
        """Append `nodes`, which are in topological order."""
        for node in nodes:
            self._link_after(self.tail.prev, node)

    def insert(self, node: Node) -> None:
        """Insert a node after its dependencies, which the order must already contain."""
        position_of = self.position_of
        last = self.head
        for dependency in self._dependencies(node):
            position = position_of[dependency]
            if position.label > last.label:
                last = position
        self._link_after(last, node)

    def remove(self, node: Node) -> None:
        """Remove `node` from the order."""
        position = self.position_of.pop(node)
        position.prev.next = position.next
        position.next.prev = position.prev
        position.node = None

    def add_edge(self, first: Node, second: Node) -> bool:
        """Move nodes so that `first` comes before `second`; if that closes a cycle, return False and move nothing."""
        return self.precedes(first, second) or self.put_after(second, (first,))

    def put_after(self, node: Node, others: Iterable[Node]) -> bool:
        """Move nodes so that `node` comes after all `others`, without adding edges.

        If one of `others` is `node` or depends on it, return False and move nothing.
        """
        position_of = self.position_of
        position = position_of[node]
        later = {other for other in others if position_of[other].label >= position.label}
        if not later:
            return True
        if node in later:
            return False
        last = max((position_of[other] for other in later), key=_by_label)
        window = (position.label, last.label)
        users = _Front({node}, self._dependents, position_of, window, nearest=-1)
        needs = _Front(later, self._dependencies, position_of, window, nearest=1)
        while True:
            if users.meets(needs) or needs.meets(users):
                return False
            if not users.todo:
                self._move(users.found, last)
                return True
            if not needs.todo:
                self._move(needs.found, position.prev)
                return True

    def _move(self, nodes: Iterable[Node], anchor: OrderPosition[Node]) -> None:
        for node in sorted(nodes, key=lambda node: self.position_of[node].label):
            self.remove(node)
            anchor = self._link_after(anchor, node)

    def _link_after(self, prev: OrderPosition[Node], node: Node) -> OrderPosition[Node]:
        following = prev.next
        if following is self.tail:
            label = prev.label + _GAP
        else:
            if following.label - prev.label < 2:
                self._spread(prev)
            label = (prev.label + following.label) // 2
        position = OrderPosition(node, label)
        position.prev = prev
        position.next = following
        prev.next = position
        following.prev = position
        self.position_of[node] = position
        return position

    def _spread(self, start: OrderPosition[Node]) -> None:
        """Free a label after `start` by relabelling the shortest range from `start` on that is sparse enough.

        The range has j positions and spans more than 4 j² labels, so that an insertion has logarithmic amortized cost.
        """
        count = 1
        end = start.next
        while end is not self.tail and end.label - start.label <= 4 * count * count:
            count += 1
            end = end.next
        span = count * _GAP if end is self.tail else end.label - start.label
        position = start.next
        for i in range(1, count):
            position.label = start.label + span * i // count
            position = position.next

"""An incremental topological order, maintained while its graph changes.

The order is a doubly linked list of places.  Each place carries an integer
label, and labels grow along the list, so "is a before b?" is one comparison.
Two algorithms keep it right, and neither ever sorts the whole graph again:

* a new node goes right after the last of its dependencies; where two
  neighbours leave no label free between them, a stretch of the list is
  relabelled (Dietz and Sleator, "Two algorithms for maintaining order in a
  list", STOC 1987: the simpler of the two);
* a new edge that runs against the order has the nodes between its ends
  searched from both ends, and those moved that the edge orders otherwise, as
  Pearce and Kelly do ("A dynamic topological sort algorithm for directed
  acyclic graphs", ACM JEA 11, 2006).  Their order is an array, whose places
  both searches share out; a list has room everywhere, so that it is enough to
  move what one search finds, the one that ends first.

An edge that would close a cycle is found where the searches meet.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from operator import attrgetter

Node = Hashable
Neighbours = Callable[[Node], Iterable[Node]]

_GAP = 1 << 40
_by_label = attrgetter("label")


class OrderPosition:
    """One position in the order.

    A place whose node was removed keeps its links, so that a cursor on it
    can still walk on; its `node` is None.
    """

    __slots__ = ("label", "next", "node", "prev")

    def __init__(self, node: Node | None, label: float) -> None:
        self.node = node
        self.label = label
        self.prev: OrderPosition | None = None
        self.next: OrderPosition | None = None


class _Front:
    """A search from some nodes on, within a window of labels, nearest nodes to the other end first.

    The window is closed on both sides, so that an edge that was refused and is
    still in the graph does not lead the search astray.  The search follows the
    nodes nearest to the other end first: it mostly finds a path without
    visiting nodes far from both ends.
    """

    def __init__(
        self,
        start: Iterable[Node],
        neighbours: Neighbours,
        place_of: dict[Node, OrderPosition],
        window: tuple[float, float],
        nearest: int,
    ) -> None:
        self.found = set(start)
        self.todo = [(nearest * place_of[node].label, i, node) for i, node in enumerate(self.found)]
        heapify(self.todo)
        self._neighbours = neighbours
        self._place_of = place_of
        self._window = window
        self._nearest = nearest

    def meets(self, other: _Front) -> bool:
        """Follow one node's edges; tell whether one leads to a node that the other front has reached."""
        lower, upper = self._window
        for node in self._neighbours(heappop(self.todo)[2]):
            if node in other.found:
                return True
            place = self._place_of.get(node)
            if place is not None and node not in self.found and lower <= place.label <= upper:
                self.found.add(node)
                heappush(self.todo, (self._nearest * place.label, len(self.found), node))
        return False


class TopologicalOrder:
    """Nodes in an order in which each comes after its dependencies.

    Parameters
    ----------
    dependencies, dependents : callable
        Give the nodes that a node needs, and the nodes that need it. They
        read the graph as it is; the order stores no edge.

    Notes
    -----
    Invariants: ``place_of`` holds one live place per node; labels grow
    strictly along the list; for each edge that was reported, the dependency's
    label is the smaller one.
    """

    def __init__(self, dependencies: Neighbours, dependents: Neighbours) -> None:
        self._dependencies = dependencies
        self._dependents = dependents
        self.place_of: dict[Node, OrderPosition] = {}
        self.head = OrderPosition(None, -1)
        self.tail = OrderPosition(None, float("inf"))
        self.head.next = self.tail
        self.tail.prev = self.head

    def __len__(self) -> int:
        return len(self.place_of)

    def __contains__(self, node: Node) -> bool:
        return node in self.place_of

    def __iter__(self) -> Iterator[Node]:
        place = self.head.next
        while place is not self.tail:
            if place.node is not None:
                yield place.node
            place = place.next

    def __reversed__(self) -> Iterator[Node]:
        place = self.tail.prev
        while place is not self.head:
            if place.node is not None:
                yield place.node
            place = place.prev

    def precedes(self, first: Node, second: Node) -> bool:
        """Tell whether `first` stands before `second`."""
        return self.place_of[first].label < self.place_of[second].label

    def extend(self, nodes: Iterable[Node]) -> None:
        """Append `nodes`, already in topological order, after all others."""
        for node in nodes:
            self._link_after(self.tail.prev, node)

    def insert(self, node: Node) -> None:
        """Add a node whose dependencies are all in the order already."""
        place_of = self.place_of
        last = self.head
        for dependency in self._dependencies(node):
            place = place_of[dependency]
            if place.label > last.label:
                last = place
        self._link_after(last, node)

    def remove(self, node: Node) -> None:
        """Take `node` out."""
        place = self.place_of.pop(node)
        place.prev.next = place.next
        place.next.prev = place.prev
        place.node = None

    def add_edge(self, first: Node, second: Node) -> bool:
        """Move nodes so that `first` comes before `second`.

        Returns
        -------
        bool
            False where `second` already comes before `first` through other
            edges, so that the new edge closes a cycle. The order is then as
            it was.
        """
        return self.precedes(first, second) or self.put_after(second, (first,))

    def put_after(self, node: Node, others: Iterable[Node]) -> bool:
        """Move nodes so that `node` comes after all `others`, which it does not depend on by an edge.

        Returns
        -------
        bool
            False where any of the others depends on `node`, or is it. The
            order is then as it was.
        """
        place_of = self.place_of
        here = place_of[node]
        behind = {other for other in others if place_of[other].label >= here.label}
        if not behind:
            return True
        if node in behind:
            return False
        last = max((place_of[other] for other in behind), key=_by_label)
        window = (here.label, last.label)
        users = _Front({node}, self._dependents, place_of, window, nearest=-1)
        needs = _Front(behind, self._dependencies, place_of, window, nearest=1)
        while True:
            if users.meets(needs) or needs.meets(users):
                return False
            if not users.todo:
                self._move(users.found, last)
                return True
            if not needs.todo:
                self._move(needs.found, here.prev)
                return True

    def _move(self, nodes: Iterable[Node], anchor: OrderPosition) -> None:
        """Take `nodes` from where they are, and put them after `anchor` in the same order."""
        for node in sorted(nodes, key=lambda node: self.place_of[node].label):
            self.remove(node)
            anchor = self._link_after(anchor, node)

    def _link_after(self, prev: OrderPosition, node: Node) -> OrderPosition:
        following = prev.next
        if following is self.tail:
            label = prev.label + _GAP
        else:
            if following.label - prev.label < 2:
                self._spread(prev)
            label = (prev.label + following.label) // 2
        place = OrderPosition(node, label)
        place.prev = prev
        place.next = following
        prev.next = place
        following.prev = place
        self.place_of[node] = place
        return place

    def _spread(self, start: OrderPosition) -> None:
        """Make room after `start`: relabel the shortest sparse stretch.

        A stretch of j places is sparse enough when its labels span more than
        j squared, which makes the amortized cost of an insertion logarithmic.
        """
        count = 1
        end = start.next
        while end is not self.tail and end.label - start.label <= 4 * count * count:
            count += 1
            end = end.next
        span = count * _GAP if end is self.tail else end.label - start.label
        place = start.next
        for i in range(1, count):
            place.label = start.label + span * i // count
            place = place.next

"""The topological order respects the edges of the graph."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.topo.order import TopologicalOrder
from tests.effort import examples


class Graph:
    """A graph whose nodes are integers, and its topological order."""

    def __init__(self):
        self.needs = {}
        self.order = TopologicalOrder(lambda node: self.needs[node], self.dependents)

    def dependents(self, node):
        return [user for user, needed in self.needs.items() if node in needed]

    def insert(self, node, needs=()):
        self.needs[node] = set(needs)
        self.order.insert(node)

    def remove(self, node):
        for needed in self.needs.values():
            needed.discard(node)
        self.order.remove(node)
        del self.needs[node]

    def connect(self, first, second):
        """Add an edge as a FunctionGraph does: first to the graph, then to the order."""
        fresh = first not in self.needs[second]
        self.needs[second].add(first)
        accepted = self.order.add_edge(first, second)
        if not accepted and fresh:
            self.needs[second].discard(first)
        return accepted

    def reaches(self, start, goal):
        todo, seen = [start], set()
        while todo:
            node = todo.pop()
            if node == goal:
                return True
            if node not in seen:
                seen.add(node)
                todo.extend(self.dependents(node))
        return False

    def check(self):
        listed = list(self.order)
        assert sorted(listed) == sorted(self.needs)
        assert list(reversed(self.order)) == listed[::-1]
        position = {node: i for i, node in enumerate(listed)}
        for node, needs in self.needs.items():
            for needed in needs:
                assert position[needed] < position[node]
        positions = [self.order.position_of[node] for node in listed]
        assert [position.node for position in positions] == listed
        labels = [position.label for position in positions]
        assert all(a < b for a, b in pairwise(labels))
        assert all(isinstance(label, int) for label in labels)


STEPS = st.lists(
    st.tuples(st.sampled_from(["insert", "insert", "remove", "connect", "connect"]), st.integers(0), st.integers(0)),
    max_size=60,
)


@settings(max_examples=examples(150))
@given(STEPS)
def test_every_edge_is_respected(steps):
    graph = Graph()
    for count, (what, a, b) in enumerate(steps):
        nodes = sorted(graph.needs)
        if what == "insert" or len(nodes) < 2:
            # the common bits of two drawn numbers select the nodes on which the new node depends
            graph.insert(count, [node for i, node in enumerate(nodes) if (a & b) >> i & 1])
        elif what == "remove":
            graph.remove(nodes[a % len(nodes)])
        else:
            first, second = nodes[a % len(nodes)], nodes[b % len(nodes)]
            closes_a_cycle = graph.reaches(second, first)
            before = list(graph.order)
            assert graph.connect(first, second) != closes_a_cycle
            if closes_a_cycle:
                assert list(graph.order) == before
        graph.check()


@settings(max_examples=examples(30))
@given(st.permutations(range(25)), st.randoms(use_true_random=False))
def test_any_dag_may_come_edge_by_edge(ranks, random):
    """The edges of an acyclic graph are accepted in any sequence."""
    graph = Graph()
    for node in range(25):
        graph.insert(node)
    edges = [(a, b) for a in range(25) for b in range(25) if ranks[a] < ranks[b]]
    random.shuffle(edges)
    for first, second in edges:
        assert graph.connect(first, second)
    graph.check()
    assert list(graph.order) == sorted(range(25), key=ranks.__getitem__)


@pytest.mark.parametrize("count", [3, 5000])
def test_labels_are_given_anew_where_they_run_out(count):
    """Any number of nodes fits between two nodes, although only 40 would if each one halved the gap between labels."""
    graph = Graph()
    graph.insert("first")
    graph.insert("last", ["first"])
    for i in range(count):
        graph.insert(i, ["first"])
    order = graph.order
    listed = list(order)
    assert listed == ["first", *reversed(range(count)), "last"]
    labels = [order.position_of[node].label for node in listed]
    assert all(a < b for a, b in pairwise(labels))


def test_a_chain_that_grows_from_its_end():
    order = TopologicalOrder(lambda node: [node - 1] if node else [], lambda node: [])
    for node in range(3000):
        order.insert(node)
    assert list(order) == list(range(3000))


def test_a_chain_that_grows_in_its_middle():
    """Each new node is inserted between the last new node and the end of the chain."""
    graph = Graph()
    graph.insert(0)
    graph.insert("end", [0])
    for node in range(1, 3000):
        graph.insert(node, [node - 1])
    assert list(graph.order) == [*range(3000), "end"]


def ten(**needs):
    graph = Graph()
    graph.order.extend(range(10))
    graph.needs.update({node: set() for node in range(10)})
    graph.needs.update({int(node[1:]): set(others) for node, others in needs.items()})
    return graph


def test_an_edge_moves_only_what_lies_between_its_ends():
    """An edge moves the smaller of two groups: node 7 and its dependencies, or node 3 and its dependents."""
    graph = ten(n5=[3], n6=[5], n9=[3])
    assert graph.connect(7, 3)
    assert list(graph.order) == [0, 1, 2, 7, 3, 4, 5, 6, 8, 9]
    graph = ten(n7=[6, 5, 2], n6=[4])
    assert graph.connect(7, 3)
    assert list(graph.order) == [0, 1, 2, 4, 5, 6, 7, 3, 8, 9]


def test_a_node_goes_behind_several_at_once():
    graph = ten(n4=[3], n7=[6])
    assert graph.order.put_after(3, [5, 7, 1])
    listed = list(graph.order)
    assert sorted(listed) == list(range(10))
    assert max(map(listed.index, (5, 7, 1))) < listed.index(3) < listed.index(4)
    assert listed.index(6) < listed.index(7)
    assert not graph.order.put_after(3, [9, 4]), "4 needs 3"
    assert not graph.order.put_after(3, [9, 3])
    assert list(graph.order) == listed


def test_an_edge_to_itself_closes_a_cycle():
    graph = Graph()
    graph.insert(0)
    assert not graph.connect(0, 0)


def test_extend_takes_nodes_in_the_order_given():
    graph = Graph()
    graph.needs.update({0: set(), 1: {0}, 2: {0, 1}})
    graph.order.extend([0, 1, 2])
    graph.check()
    assert len(graph.order) == 3
    assert 1 in graph.order
    assert graph.order.precedes(0, 2)
    assert not graph.order.precedes(2, 1)


def test_who_stands_on_a_removed_place_can_walk_on():
    graph = Graph()
    for node in range(4):
        graph.insert(node, [node - 1] if node else [])
    position = graph.order.position_of[2]
    graph.remove(2)
    assert position.node is None
    assert position.next.node == 3
    assert position.prev.node == 1

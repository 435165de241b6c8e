"""The worklist pops each pending node once, in topological order, and alternates between both directions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.topo.order import TopologicalOrder
from optdb.topo.worklist import DIRECTIONS, Worklist
from tests.effort import examples


def chain(length, direction="in_to_out"):
    """Return the worklist of a chain 0 -> 1 -> 2 ..."""
    order = TopologicalOrder(lambda node: [node - 1] if node else [], lambda node: [])
    order.extend(range(length))
    return Worklist(order, direction)


def drained(worklist):
    found = []
    while worklist:
        found.append(worklist.pop())
    return found


@pytest.mark.parametrize("direction", DIRECTIONS)
@settings(max_examples=examples(50))
@given(pushes=st.lists(st.integers(0, 19)))
def test_each_pending_node_is_popped_once_and_in_order(direction, pushes):
    worklist = chain(20, direction)
    worklist.extend(pushes)
    assert len(worklist) == len(set(pushes))
    assert drained(worklist) == sorted(set(pushes), reverse=direction == "out_to_in")


@pytest.mark.parametrize("direction", DIRECTIONS)
@settings(max_examples=examples(80))
@given(steps=st.lists(st.tuples(st.sampled_from(["push", "push", "pop", "discard"]), st.integers(0, 19))))
def test_against_a_set_and_a_cursor(direction, steps):
    """The reference pops the nearest pending node in its direction, and reverses its direction if there is none."""
    worklist = chain(20, direction)
    pending, cursor, sign = set(), None, 1 if direction == "in_to_out" else -1
    for what, node in steps:
        if what == "push":
            worklist.push(node)
            pending.add(node)
        elif what == "discard":
            worklist.discard(node)
            pending.discard(node)
        elif pending:
            ahead = {n for n in pending if cursor is None or n * sign > cursor * sign}
            if not ahead:
                sign = -sign
            cursor = min(n * sign for n in ahead or pending) * sign
            pending.remove(cursor)
            assert worklist.pop() == cursor
        assert worklist.pending == pending
        assert bool(worklist) == bool(pending)


def test_a_push_ahead_of_the_cursor_is_met_on_this_walk():
    worklist = chain(5)
    worklist.extend([0, 4])
    assert worklist.pop() == 0
    worklist.push(2)
    assert drained(worklist) == [2, 4]
    assert worklist.walks == 1


def test_pushes_behind_the_cursor_are_met_on_the_way_back():
    worklist = chain(5)
    worklist.extend([3, 4])
    assert worklist.pop() == 3
    worklist.extend([0, 2])
    assert drained(worklist) == [4, 2, 0]
    assert worklist.walks == 2


def test_the_node_under_the_cursor_can_come_back():
    worklist = chain(3)
    worklist.push(1)
    assert worklist.pop() == 1
    worklist.push(1)
    assert 1 in worklist
    assert worklist.pop() == 1
    assert not worklist


def test_nodes_may_leave_the_order_under_the_cursor():
    worklist = chain(5)
    worklist.extend([1, 3])
    assert worklist.pop() == 1
    for node in (1, 2):
        worklist.discard(node)
        worklist.order.remove(node)
    assert drained(worklist) == [3]


def test_all_that_the_cursor_stood_on_may_leave():
    """The worklist continues from a removed position, which still links to a position that was removed later."""
    worklist = chain(6)
    worklist.extend([2, 5])
    assert worklist.pop() == 2
    for node in (2, 3, 4):
        worklist.order.remove(node)
    assert drained(worklist) == [5]
    worklist.push(0)
    assert drained(worklist) == [0]


def test_nodes_may_move():
    needs = {node: [] for node in range(4)}
    users = {node: [] for node in range(4)}
    order = TopologicalOrder(needs.__getitem__, users.__getitem__)
    order.extend(range(4))
    worklist = Worklist(order, "in_to_out")
    worklist.extend(range(4))
    needs[0].append(3)
    users[3].append(0)
    order.add_edge(3, 0)
    popped = drained(worklist)
    assert sorted(popped) == [0, 1, 2, 3]
    assert popped.index(3) < popped.index(0)


def test_an_empty_worklist_says_so():
    worklist = chain(3)
    with pytest.raises(IndexError, match="empty"):
        worklist.pop()
    worklist.discard(1)
    assert len(worklist) == 0


def test_an_unknown_direction_is_refused():
    with pytest.raises(ValueError, match="sideways"):
        Worklist(chain(1).order, "sideways")

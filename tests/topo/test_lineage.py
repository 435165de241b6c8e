"""Only rewriters that undo each other are detected."""

from __future__ import annotations

import theano.tensor as tt
from theano import gof

from optdb.host.api.rewriters import FunctionNodeRewriter
from optdb.topo.lineage import FIRST_NUMBERED, PATIENCE, Lineage
from optdb.topo.rules import Rule

X = tt.dvector("x")


def rule(name):
    def f(fgraph, node):
        return None

    f.__name__ = name
    return Rule(FunctionNodeRewriter(f), lambda node: f(node.fgraph, node))


FORTH, BACK = rule("forth"), rule("back")


def swing(lineage, times, make_a, make_b):
    """Apply the rules FORTH (A to B) and BACK (B to A) in turn; return results of `replaced`, and the last node."""
    results = []
    node = make_a()
    for _ in range(times):
        for rule_, make in ((FORTH, make_b), (BACK, make_a)):
            if lineage.is_stopped(rule_, node):
                return results, node
            new = make()
            results.append(lineage.replaced(node, rule_, [new]))
            node = new
    return results, node


def test_a_swing_is_stopped_when_patience_is_out():
    lineage = Lineage()
    results, node = swing(lineage, 20, lambda: tt.exp(X).owner, lambda: tt.log(X).owner)
    assert results.count(None) == len(results) - 1
    assert results[-1] in (FORTH, BACK)
    assert len(results) <= FIRST_NUMBERED + 2 * (PATIENCE + 1)
    assert lineage.is_stopped(results[-1], node)


def test_a_swing_over_equal_constants_is_seen():
    """Each time, rewriters create new constants, which can only be recognized as equal by their values."""
    lineage = Lineage()

    def times(value):
        return lambda: tt.mul(X, tt.TensorConstant(tt.dvector().type.clone(broadcastable=(True,)), [value])).owner

    results, _ = swing(lineage, 20, times(2.0), times(3.0))
    assert results[-1] is not None


def test_growth_is_no_swing():
    lineage = Lineage()
    node = tt.exp(X).owner
    for _ in range(50):
        new = tt.exp(node.outputs[0]).owner
        assert lineage.replaced(node, FORTH, [new]) is None
        node = new
    assert not lineage.is_stopped(FORTH, node)


def test_equal_nodes_in_different_places_are_no_swing():
    """Replacing fifty nodes exp(x) by log(x) is no cycle, because no node descends from another one."""
    lineage = Lineage()
    for _ in range(50):
        assert lineage.replaced(tt.exp(X).owner, FORTH, [tt.log(X).owner]) is None


def test_only_the_node_of_the_swing_is_stopped():
    lineage = Lineage()
    results, node = swing(lineage, 20, lambda: tt.exp(X).owner, lambda: tt.log(X).owner)
    other = tt.exp(tt.dvector("other")).owner
    assert not lineage.is_stopped(results[-1], other)
    assert not lineage.is_stopped(rule("third"), node)


def test_an_unhashable_op_is_equal_to_itself_only():
    class Unhashable(gof.Op):
        __hash__ = None

        def __eq__(self, other):
            return True

        def make_node(self, x):
            return gof.Apply(self, [x], [x.type()])

    one = Unhashable()
    results, _ = swing(Lineage(), 20, lambda: one(X).owner, lambda: tt.log(X).owner)
    assert results[-1] is not None
    results, _ = swing(Lineage(), 20, lambda: Unhashable()(X).owner, lambda: tt.log(X).owner)
    assert set(results[1::2]) == {None}

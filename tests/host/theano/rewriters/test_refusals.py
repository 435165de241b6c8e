"""The engine only skips rewriters that would decline a node again."""

from __future__ import annotations

import pytest
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.tensor import opt

from optdb.host.api.facts import ANY, FACTS, facts_of
from optdb.host.api.rewriters import FunctionNodeRewriter
from optdb.host.api.session import optimizing
from optdb.host.theano.speedups.algebra import has_unknown_simplifiers
from optdb.topo.engine import Engine
from optdb.topo.rewriter import TopoRewriter
from tests.effort import examples
from tests.host.theano.rewriters.test_guards import BINARY, UNARY, compile_both, steps
from tests.topo.graphs import graph_of, ops


@pytest.fixture
def left_out(monkeypatch):
    """When the engine verifies a fixed point, also try the rules that it skips; return a list of these rules' names."""
    names = []
    with_open_rules = Engine._with_open_rules

    def ask_the_others_too(engine):
        found = with_open_rules(engine)
        for node in engine._unchanged:
            for rule in engine.table.rules_for(node.op):
                if rule not in engine._to_retry[node]:
                    names.append(rule.name)
                    held_back = rule.guard is not None and not rule.guard(node)
                    assert held_back or rule.transform(node) in (None, False), (rule, node)
        return found

    monkeypatch.setattr(Engine, "_with_open_rules", ask_the_others_too)
    return names


def test_on_each_operation_and_its_gradient(left_out):
    x, y = tt.dmatrix("x"), tt.fmatrix("y")
    compile_both([x, y], [make(var) for make in UNARY for var in (x, y)])
    compile_both([x, y], [make(a, b) for make in BINARY for a, b in ((x, y), (y, x), (x, x))])
    assert {"local_mul_canonizer", "local_greedy_distributor", "local_useless_elemwise"} <= {*left_out}


def test_on_shapes_and_indices(left_out):
    x, i = tt.dtensor3("x"), tt.lscalar("i")
    parts = [x[i], x[1:, ::2][0], tt.inc_subtensor(x[i:], 1)[i], tt.join(0, x, x)[:i], x.reshape((-1, x.shape[2]))]
    moved = [tt.alloc(x[0, 0, 0], i, 3).sum(0), x.dimshuffle(2, 0, "x", 1).sum(1), x.reshape(x.shape), tt.zeros_like(x)]
    compile_both([x, i], [*parts, *moved])
    assert "local_useless_slice" in left_out


def test_on_random_graphs(left_out):
    @settings(max_examples=examples(25))
    @given(st.lists(steps, min_size=3, max_size=8))
    def compile_graph(build):
        x, y = tt.dmatrix("x"), tt.fmatrix("y")
        pool = [x, y]
        for kind, first, second in build:
            a, b = pool[first % len(pool)], pool[second % len(pool)]
            pool.append(UNARY[kind](a) if kind < len(UNARY) else BINARY[kind - len(UNARY)](a, b))
        compile_both([x, y], pool[-3:])

    compile_graph()


def test_a_rule_of_somebody_elses_is_always_asked_again():
    """A user's rule may depend on anything, such as the number of nodes, so it is tried again after each change."""
    asked = []

    def watch_the_graph(fgraph, node):
        asked.append(len(fgraph.apply_nodes))

    x = tt.dvector("x")
    watcher = FunctionNodeRewriter(watch_the_graph, [tt.exp])
    remover = FunctionNodeRewriter(lambda fgraph, node: node.inputs, [tt.cos])
    assert facts_of(watcher).lasting_refusals() == ()
    fgraph = graph_of([x], tt.exp(tt.tanh(x)), tt.cos(tt.sin(x)))
    TopoRewriter([watcher, remover], direction="out_to_in").optimize(fgraph)
    assert ops(fgraph).count(tt.cos) == 0
    assert asked[-1] == 3, "after the last change"


def test_canonizers_that_wait_for_a_user_are_asked_again():
    x, y = tt.dvectors("x", "y")
    fgraph = graph_of([x, y], (x * y) * y)
    (inner,) = [node for node in fgraph.apply_nodes if fgraph.outputs[0].owner is not node]
    with optimizing():
        assert facts_of(opt.local_mul_canonizer).lasting_refusals() == (False,)
        assert opt.local_mul_canonizer.transform(inner) is None
    assert facts_of(opt.local_mul_canonizer).lasting_refusals() == (), "Theano's own method does not say why"


def test_simplifiers_of_somebody_elses_may_look_anywhere(monkeypatch):
    simplifiers = [*opt.local_mul_canonizer.external_simplifiers, ("mine", lambda num, denum: (num, denum))]
    with optimizing():
        assert facts_of(opt.local_greedy_distributor).lasting_refusals()
        monkeypatch.setattr(opt.local_mul_canonizer, "external_simplifiers", simplifiers)
        assert has_unknown_simplifiers()
        assert (
            facts_of(opt.local_greedy_distributor).lasting_refusals()
            == facts_of(opt.local_add_canonizer).lasting_refusals()
            == ()
        )


def test_patterns_that_begin_at_the_users_are_asked_again():
    """The node erf is visited before its user becomes 1 + erf; this change leaves the inputs of erf unchanged."""
    for rewriter in (rewriter for rewriter, facts in FACTS.items() if facts.lasting == ANY):
        assert getattr(rewriter, "get_nodes", None) is None, rewriter
        assert getattr(rewriter, "allow_multiple_clients", True), rewriter
    x, y = tt.dscalars("x", "y")
    one = x / x
    fgraph = graph_of([x, y], tt.exp(one), one + tt.erf(y))
    TopoRewriter([opt.local_mul_canonizer, opt.local_one_plus_erf]).optimize(fgraph)
    assert tt.erfc in ops(fgraph)
    assert tt.erf not in ops(fgraph)


def test_simplifiers_of_sums_count_too(monkeypatch):
    def simplify(num, denum):
        return num, denum

    monkeypatch.setattr(opt.local_add_canonizer, "external_simplifiers", [("X_over_absX", simplify)])
    with optimizing():
        assert facts_of(opt.local_add_canonizer).lasting_refusals() == ()

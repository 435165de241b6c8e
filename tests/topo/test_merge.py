"""The merge index finds what Theano's MergeOptimizer finds."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.gof import Apply, InconsistencyError, Op
from theano.gof.destroyhandler import DestroyHandler
from theano.gof.opt import MergeFeature, MergeOptimizer

from optdb.topo.merge import IndexedMergeOptimizer, MergeIndex
from tests.effort import examples
from tests.topo.graphs import graph_of, ops, rewriter, run


def merged(fgraph, optimizer):
    optimizer.optimize(fgraph)
    fgraph.check_integrity()
    return fgraph


def check_index(fgraph):
    """Check the invariants of the index."""
    index = fgraph.merge_feature
    assert isinstance(index, MergeIndex)
    assert set(index._keys) <= fgraph.apply_nodes
    for node, key in index._keys.items():
        assert key == index._key(node)
        assert index._nodes[key] is node
    assert len(index._nodes) == len(index._keys)
    assert set(index.nodes_seen) == set(index._keys)


NUMBERS = {}
"""Equal expressions have equal numbers, in any graph."""


def shape_of_graph(fgraph):
    """Return a graph's number of nodes, and numbers that represent the expressions of its outputs."""
    number_of = {}
    for node in fgraph.toposort():
        key = (str(node.op), *(describe(var, number_of) for var in node.inputs))
        number_of[node] = NUMBERS.setdefault(key, len(NUMBERS))
    return len(number_of), [describe(var, number_of) for var in fgraph.outputs]


def describe(var, number_of):
    if var.owner is not None:
        return (number_of[var.owner], var.index)
    return f"{var.data} {var.type}" if hasattr(var, "data") else var.name


VALUES = (np.float64(1), np.float64(2), np.float32(1), np.int8(1), np.array([1.0]), np.array([1.0, 2.0]))


@st.composite
def graphs(draw):
    """Draw a graph with many duplicate nodes."""
    x, y = tt.dvector("x"), tt.dvector("y")
    pool = [x, y]
    for _ in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(["exp", "add", "constant", "sum", "arange"]))
        a = draw(st.sampled_from(pool))
        if kind == "exp":
            pool.append(tt.exp(a))
        elif kind == "add":
            pool.append(a + draw(st.sampled_from(pool)))
        elif kind == "constant":
            pool.append(a * tt.constant(draw(st.sampled_from(VALUES))).clone())
        elif kind == "sum":
            pool.append(tt.sum(a))
        else:
            pool.append(tt.arange(tt.constant(draw(st.sampled_from([2, 3]))).clone()))
    return [x, y], [x, y, *draw(st.lists(st.sampled_from(pool), min_size=1, max_size=5))]


@pytest.mark.slow
@settings(max_examples=examples(120))
@given(graphs())
def test_the_same_as_theano(graph):
    inputs, outputs = graph
    ours = merged(graph_of(inputs, *outputs), IndexedMergeOptimizer())
    stock = merged(graph_of(inputs, *outputs), MergeOptimizer())
    assert shape_of_graph(ours) == shape_of_graph(stock)
    check_index(ours)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(graph=graphs(), choices=st.lists(st.tuples(st.integers(0), st.integers(0)), max_size=8))
def test_the_index_follows_each_change(graph, choices):
    """After any replacements, the graph is the same as if it had been merged from scratch."""
    inputs, outputs = graph
    fgraph = merged(graph_of(inputs, *outputs), IndexedMergeOptimizer())
    for a, b in choices:
        variables = [var for node in fgraph.toposort() for var in node.outputs]
        if not variables:
            return
        old = variables[a % len(variables)]
        candidates = [var for var in [*fgraph.inputs, *variables] if var.type == old.type and var is not old]
        if not candidates:
            continue
        new = candidates[b % len(candidates)]
        before = {var.owner for var in theano.gof.graph.ancestors([new])}
        if old.owner in before:  # would be a cycle
            continue
        fgraph.replace_all_validate([(old, new)])
        merged(fgraph, IndexedMergeOptimizer())
        check_index(fgraph)
    inputs, outputs = fgraph.inputs, fgraph.outputs
    again = merged(graph_of(inputs, *outputs), MergeOptimizer())
    assert shape_of_graph(fgraph) == shape_of_graph(again)


def test_constants_are_merged_by_signature():
    """Equal values of one type are merged, but not values of different types, and not nan with a number."""
    x = tt.dvector("x")
    nan = np.array([np.nan, 1.0])

    def times(value, dtype="float64"):
        return x * tt.constant(np.asarray(value, dtype)).clone()

    together = [times(2.0), times(2.0), times(nan), times(nan)]
    different = [times(2.0, "float32"), times([2.0]), times([2.0, 1.0]), times(-0.0), times(0.0)]
    ours = merged(graph_of([x], *together, *different), IndexedMergeOptimizer())
    stock = merged(graph_of([x], *together, *different), MergeOptimizer())
    assert shape_of_graph(ours) == shape_of_graph(stock)
    assert ours.outputs[0] is ours.outputs[1]
    assert ours.outputs[2] is ours.outputs[3]
    assert len({*ours.outputs}) <= 2 + len(different)
    assert len({*ours.outputs[4:7], ours.outputs[0], ours.outputs[2]}) == 5


def test_a_constant_that_left_may_come_back():
    """After a constant's last client has been removed, the index still merges new constants that are equal."""
    x = tt.dvector("x")
    two = np.array([2.0, 2.0])
    fgraph = merged(graph_of([x], tt.exp(x * tt.constant(two))), IndexedMergeOptimizer())
    out = fgraph.outputs[0]
    fgraph.replace_all_validate([(out.owner.inputs[0], fgraph.inputs[0])])
    first, second = (fgraph.inputs[0] - tt.constant(two).clone() for _ in range(2))
    fgraph.replace_all_validate([(fgraph.outputs[0], first * second)])
    merged(fgraph, IndexedMergeOptimizer())
    product = fgraph.outputs[0].owner
    assert product.inputs[0] is product.inputs[1]
    check_index(fgraph)


def test_the_later_name_is_kept_as_theano_keeps_it():
    x = tt.dvector("x")
    a, b = tt.exp(x), tt.exp(x)
    a.name, b.name = "a", "b"
    names = []
    for optimizer in (IndexedMergeOptimizer(), MergeOptimizer()):
        fgraph = merged(graph_of([x], a, b), optimizer)
        assert fgraph.outputs[0] is fgraph.outputs[1]
        names.append(fgraph.outputs[0].name)
    assert names[0] == names[1]


class Refuse:
    """A feature that rejects and counts all replacements."""

    tried = 0

    def validate(self, fgraph):
        self.tried += 1
        raise InconsistencyError("nothing is replaced")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("chain", [1, 4])
def test_a_refused_merge_is_not_tried_for_ever(chain):
    """After a merge was rejected and reverted, the merged node is imported again, but the merge is not tried again."""
    x = tt.dvector("x")
    a, b = x, x
    for _ in range(chain):
        a, b = tt.exp(a), tt.exp(b)
    fgraph = graph_of([x], tt.sin(a), tt.cos(b))
    before = shape_of_graph(fgraph)
    refuse = Refuse()
    fgraph.attach_feature(refuse)
    merged(fgraph, IndexedMergeOptimizer())
    assert shape_of_graph(fgraph) == before
    assert 0 < refuse.tried < 10
    merged(fgraph, IndexedMergeOptimizer())
    assert refuse.tried < 10


class AddOne(Op):
    """An op that computes x + 1, in place if requested."""

    __props__ = ("inplace",)

    def __init__(self, inplace=False):
        self.inplace = inplace
        if inplace:
            self.destroy_map = {0: [0]}

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0] if self.inplace else inputs[0].copy()
        outputs[0][0] += 1


def test_no_merge_across_destroyers():
    """Equal nodes are not merged if different in-place nodes overwrite their results."""
    x = tt.dvector("x")
    inplace = AddOne(inplace=True)
    for optimizer in (IndexedMergeOptimizer(), MergeOptimizer()):
        fgraph = graph_of([x], inplace(tt.exp(x)), tt.sin(inplace(tt.exp(x))), tt.cos(x), tt.cos(x))
        fgraph.attach_feature(DestroyHandler())
        merged(fgraph, optimizer)
        assert ops(fgraph).count(tt.exp) == 2
        assert ops(fgraph).count(tt.cos) == 1


def test_unequal_ops_and_inputs_stay_apart():
    x, y = tt.dvectors("x", "y")
    fgraph = merged(
        graph_of([x, y], x + y, y + x, x - y, tt.sum(x), tt.sum(x, dtype="float32")), IndexedMergeOptimizer()
    )
    assert len(fgraph.apply_nodes) == 5


def test_an_unhashable_op_merges_with_itself_only():
    class Unhashable(Op):
        __hash__ = None

        def __eq__(self, other):
            return self is other

        def make_node(self, x):
            return Apply(self, [x], [x.type()])

    x = tt.dvector("x")
    one, other = Unhashable(), Unhashable()
    fgraph = merged(graph_of([x], one(x), one(x), other(x)), IndexedMergeOptimizer())
    assert len(fgraph.apply_nodes) == 2


def test_the_engine_merges_after_each_change():
    """As a cleanup rewriter, the merge runs before the engine visits the next node."""
    seen = []

    @rewriter([tt.sinh, tt.cosh])
    def to_exp(fgraph, node):
        return [tt.exp(node.inputs[0])]

    @rewriter([tt.exp])
    def count_exp(fgraph, node):
        seen.append(ops(fgraph).count(tt.exp))

    x = tt.dvector("x")
    fgraph = graph_of([x], tt.sinh(x) + tt.cosh(x) + tt.exp(x))
    run(fgraph, to_exp, count_exp, cleanup_rewriters=[MergeOptimizer()])
    assert set(seen) == {1}
    assert ops(fgraph).count(tt.exp) == 1
    check_index(fgraph)


def test_a_graph_travels_with_its_index():
    """A loaded graph has Theano's own merge feature, which knows the graph's nodes."""
    x = tt.dvector("x")
    fgraph = merged(graph_of([x], tt.exp(x) * 2, tt.sin(x) * 2), IndexedMergeOptimizer())
    loaded = pickle.loads(pickle.dumps(fgraph))
    assert set(loaded.merge_feature.nodes_seen) == loaded.apply_nodes
    assert not loaded.merge_feature.scheduled
    assert type(loaded.merge_feature) is MergeFeature
    loaded.check_integrity()


def test_it_is_attached_once():
    x = tt.dvector("x")
    fgraph = graph_of([x], x + 1)
    IndexedMergeOptimizer().add_requirements(fgraph)
    first = fgraph.merge_feature
    IndexedMergeOptimizer().add_requirements(fgraph)
    MergeOptimizer().add_requirements(fgraph)
    assert fgraph.merge_feature is first

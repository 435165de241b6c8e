"""Pickling or deep-copying a graph needs the same recursion depth, however large the graph is."""

from __future__ import annotations

import copy
import pickle
import sys

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.gof import Apply, FunctionGraph

from optdb.host.api.shallow_pickles import pickle_in_order
from optdb.host.theano.functions.optimized import replace_in_linked
from optdb.host.theano.speedups.shapes import LazyShapeFeature

#: Length of a graph. With Theano's own pickles, a graph of a third of this length already exceeds Python's recursion
#: limit.
LONG = 600
TRAVELS = {"pickle": lambda graph: pickle.loads(pickle.dumps(graph, -1)), "deepcopy": copy.deepcopy}


def long_graph(length=LONG, *unused):
    """Return a graph of a chain of sums: each value has two clients, and each sum adds a constant."""
    x, one = tt.fvector("x"), tt.TensorConstant(tt.fvector, np.ones(1, "float32"))
    values = [x, tt.exp(x)]
    for _ in range(length):
        values.append(Apply(tt.add, [values[-1], values[-2], one], [x.type()]).outputs[0])
    return FunctionGraph([x, *unused], values[-2:], clone=False)


def clients_by_position(graph):
    """Return the clients of each value, with nodes given by their positions."""
    nodes = graph.toposort()
    position = {node: i for i, node in enumerate(nodes)}
    values = [*graph.inputs, *(out for node in nodes for out in node.outputs)]
    return [[(position.get(user, user), i) for user, i in var.clients] for var in values]


@pytest.mark.parametrize("travel", TRAVELS.values(), ids=TRAVELS)
def test_a_long_graph_travels(travel):
    graph = long_graph(LONG, tt.fvector("unused"))
    pickle_in_order(graph)
    again = travel(graph)
    assert len(again.apply_nodes) == LONG + 1
    assert clients_by_position(again) == clients_by_position(graph)
    assert all(var.fgraph is again for var in again.inputs + again.outputs)


@pytest.mark.parametrize("travel", TRAVELS.values(), ids=TRAVELS)
def test_a_function_of_a_long_graph_travels(travel):
    """The function's maker also holds the outputs and updates from before the optimization."""
    x, s = tt.fscalar("x"), theano.shared(np.float32(1), "s")
    out, update = x, s
    for _ in range(LONG // 2):
        out, update = tt.neg(out), tt.neg(update)
    f = theano.function([x], out, updates=[(s, update)], mode=theano.Mode("py", None))
    pickle_in_order(f.maker.fgraph)
    again = travel(f)
    pickle_in_order(again.maker.fgraph)
    assert travel(again)(2) == again(2) == f(2) == 2


@pytest.mark.parametrize("travel", TRAVELS.values(), ids=TRAVELS)
def test_lengths_of_a_long_graph_are_inferred_again(travel):
    """Lengths are not pickled, because each length is an expression that is as deep as the graph."""
    x = tt.fvector("x")
    out = x
    for _ in range(LONG // 6):
        out = tt.tanh(out)[::-1]
    graph = FunctionGraph([x], [out], clone=True)
    graph.attach_feature(LazyShapeFeature())
    assert graph.shape_feature.shape_of[graph.outputs[0]]
    pickle_in_order(graph)
    again = TRAVELS["pickle"](travel(graph))
    assert "shape_of" not in vars(again.shape_feature)
    (length,) = again.shape_feature.shape_of[again.outputs[0]]
    assert theano.function(again.inputs, length, mode=theano.Mode("py", None))(np.ones(3, "float32")) == 3


def test_without_it_a_long_graph_does_not():
    # Other tests may have raised the recursion limit.
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    try:
        with pytest.raises(RecursionError):
            copy.deepcopy(long_graph())
    finally:
        sys.setrecursionlimit(usual)


def test_a_pickle_is_pickled_likewise():
    graph = long_graph()
    pickle_in_order(graph)
    twice = TRAVELS["pickle"](TRAVELS["pickle"](graph))
    assert clients_by_position(twice) == clients_by_position(graph)
    twice.check_integrity()


def test_from_a_variable_of_the_graph():
    graph = long_graph(50)
    pickle_in_order(graph)
    for var in (graph.inputs[0], graph.toposort()[20].outputs[0], graph.outputs[0]):
        again = pickle.loads(pickle.dumps(var))
        assert len(again.clients) == len(var.clients)
        again.fgraph.check_integrity()
        assert clients_by_position(again.fgraph) == clients_by_position(graph)


def test_a_graph_can_be_changed_afterwards():
    graph = long_graph(5)
    pickle_in_order(graph)
    again = pickle.loads(pickle.dumps(graph))
    replace_in_linked(again, [(again.outputs[0], tt.exp(again.inputs[0]))], "a test")
    again.check_integrity()
    assert theano.pp(again.outputs[0]) == "exp(x)"


def test_a_clone_and_other_graphs_are_pickled_by_theano():
    graph = long_graph(5)
    pickle_in_order(graph)
    pickle_in_order(graph)
    assert len(graph._features) == 1 + len(long_graph(5)._features)
    clone = graph.clone()
    assert len(clone._features) == len(graph._features) - 1
    for other in (clone, long_graph(5)):
        assert "clients" in other.inputs[0].__getstate__()
    assert "clients" not in graph.inputs[0].__getstate__()

"""Elementwise ops overwrite inputs at least as often as with stock Theano, without changing values."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano import scalar
from theano.gof.destroyhandler import DestroyHandler
from theano.tensor.elemwise import Elemwise
from theano.tensor.opt import InplaceElemwiseOptimizer

import optdb
from optdb.topo.inplace import InplaceElemwise
from optdb.topo.translate import translate
from tests.effort import examples
from tests.topo.graphs import STOCK


def inplace_nodes(f):
    return [node for node in f.maker.fgraph.toposort() if getattr(node.op, "destroy_map", None)]


def both(inputs, outputs, mode=STOCK, **options):
    stock = theano.function(inputs, outputs, mode=mode, **options)
    with optdb.enable():
        ours = theano.function(inputs, outputs, mode=mode, **options)
    return stock, ours


def test_a_chain_works_in_place():
    """Fusion is excluded, because it would leave only one op."""
    x = tt.dvector("x")
    out = tt.exp(tt.sin(tt.cos(x)))
    stock, ours = both([x], out, STOCK.excluding("fusion"))
    assert len(inplace_nodes(ours)) == len(inplace_nodes(stock)) == 2
    np.testing.assert_array_equal(stock([1.0, 2.0]), ours([1.0, 2.0]))


def test_an_update_overwrites_what_it_updates():
    """A next value is computed in the shared variable's memory, even if that is not the first operand."""
    x = tt.dvector("x")
    shared = theano.shared(np.zeros(3))
    with optdb.enable():
        f = theano.function([x], [], updates=[(shared, tt.exp(x) + shared)], mode=STOCK.excluding("fusion"))
    (node,) = inplace_nodes(f)
    assert node.inputs[node.op.inplace_pattern[0]] in f.maker.fgraph.inputs


def test_inputs_are_the_caller_s():
    x = tt.dvector("x")
    _, ours = both([x], tt.exp(x))
    assert inplace_nodes(ours) == []
    _, mutable = both([theano.In(x, mutable=True)], tt.exp(x))
    assert len(inplace_nodes(mutable)) == 1


def test_what_somebody_still_reads_is_left_alone():
    x = tt.dvector("x")
    y = tt.dot(x, tt.eye(3))
    stock, ours = both([x], [tt.exp(y) * tt.dot(y, tt.dot(tt.eye(3), tt.exp(y)))], STOCK.excluding("fusion"))
    value = np.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(stock(value)[0], ours(value)[0])


@pytest.mark.slow
def test_many_nodes_lose_nothing():
    """In a large graph, stock Theano validates ten changes together, and reverts all ten if one is invalid."""
    x = tt.dmatrix("x")
    outputs = []
    for i in range(100):
        y = tt.dot(x, x + i)
        outputs += [tt.exp(y), tt.sin(y) + tt.exp(y)]
    mode = STOCK.excluding("fusion")
    stock, ours = both([x], outputs, mode)
    assert len(inplace_nodes(ours)) >= len(inplace_nodes(stock))
    value = np.random.RandomState(1).uniform(-1, 1, (3, 3))
    for theirs, mine in zip(stock(value), ours(value), strict=True):
        np.testing.assert_allclose(theirs, mine)


X, Y = tt.dmatrix("x"), tt.dmatrix("y")


def expressions():
    leaves = st.sampled_from([X, Y, X.T, tt.dot(X, Y), X[::-1], Y + 1])
    return st.recursive(
        leaves,
        lambda smaller: st.one_of(
            st.builds(tt.add, smaller, smaller),
            st.builds(tt.mul, smaller, smaller),
            st.builds(tt.dot, smaller, smaller),
            st.builds(tt.tanh, smaller),
            st.builds(lambda v: v.T, smaller),
            st.builds(lambda v: tt.set_subtensor(v[0], v[1]), smaller),
        ),
        max_leaves=10,
    )


@pytest.mark.slow
@settings(max_examples=examples(100, share=8))
@given(expressions(), st.booleans(), st.booleans())
def test_values_stay(expression, fused, mutable):
    """Graphs with views, in-place ops and an update compute the right values, even if they overwrite arguments."""
    mode = STOCK if fused else STOCK.excluding("fusion")
    shared = theano.shared(np.full((2, 2), 0.25))
    inputs = [theano.In(X, mutable=mutable), theano.In(Y, mutable=mutable)]
    updates = [(shared, shared * 0.5 + expression)]
    stock, ours = both(inputs, [expression], mode, updates=updates, on_unused_input="ignore")
    results = []
    for f in (stock, ours):
        shared.set_value(np.full((2, 2), 0.25))
        args = [np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([[0.5, -0.6], [0.7, 0.8]])]
        results.append((f(*args)[0], shared.get_value()))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-10)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-10)


@pytest.mark.parametrize("limit", [1, 10, -1])
def test_theano_s_flag_decides_about_scalars(limit):
    x = tt.dscalar("x")
    with theano.change_flags(**{"tensor.insert_inplace_optimizer_validate_nb": limit}):
        stock, ours = both([x], tt.exp(tt.sin(tt.cos(x))), STOCK.excluding("fusion", "inline_scalars"))
    assert len(inplace_nodes(stock)) == len(inplace_nodes(ours)) == (0 if limit == 10 else 2)


def test_a_graph_with_theano_s_handler_is_left_to_theano():
    """If Theano's own handler is attached, for example by quick detection, Theano's own in-place rewriter runs."""
    x = tt.dvector("x")
    with theano.change_flags(cycle_detection="fast"):
        stock, ours = both([x], tt.exp(tt.sin(x)), STOCK.excluding("fusion"))
    assert type(ours.maker.fgraph.destroy_handler) is DestroyHandler
    assert len(inplace_nodes(stock)) == len(inplace_nodes(ours)) == 1


def test_the_profile_is_theano_s():
    x = tt.dvector("x")
    rewriter = translate(InplaceElemwiseOptimizer(Elemwise))
    assert type(rewriter) is InplaceElemwise
    with optdb.enable():
        fgraph = theano.function([x], tt.exp(tt.sin(x)), mode=STOCK.excluding("fusion", "inplace")).maker.fgraph
        profile = rewriter.optimize(fgraph)
    assert profile["nb_call_replace"] == 1 and profile["nb_inconsistent"] == 0 and dict(profile["ndim"]) == {1: 1}


@pytest.mark.slow
@pytest.mark.parametrize("passes", [False, True])
def test_no_output_overwrites_what_another_one_reads_after_it(passes):
    """A fused op must not overwrite an input with its first output if C code reads the input for its second output."""
    a, b = scalar.float64(), scalar.float64()
    total = scalar.add(a, b)
    outputs = [total, scalar.identity(a) if passes else scalar.mul(a, total)]
    both_of = Elemwise(scalar.Composite([a, b], outputs))
    x, y = tt.dvectors("x", "y")
    temporary = tt.cumsum(tt.exp(x))
    with optdb.enable():
        f = theano.function([x, y], [tt.cumsum(out) for out in both_of(temporary, y)])
    values = np.cumsum(np.exp([0.0, 0.5, 1.0]))
    first, second = f([0.0, 0.5, 1.0], [1.0, 2.0, 3.0])
    sums = values + np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(first, np.cumsum(sums))
    np.testing.assert_allclose(second, np.cumsum(values if passes else values * sums))


def test_an_output_overwrites_what_it_reads_last():
    a, b = scalar.float64(), scalar.float64()
    product = scalar.mul(b, b)
    both_of = Elemwise(scalar.Composite([a, b], [product, scalar.add(a, product)]))
    x, y = tt.dvectors("x", "y")
    with optdb.enable():
        f = theano.function([x, y], [tt.cumsum(out) for out in both_of(tt.cumsum(x), tt.cumsum(y))])
    patterns = [node.op.inplace_pattern for node in f.maker.fgraph.toposort() if isinstance(node.op, Elemwise)]
    assert {0: 1, 1: 0} in patterns

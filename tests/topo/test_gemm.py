"""Sums of products become the same Gemms as in Theano, with one replacement."""

from __future__ import annotations

import io

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.compile.ops import Shape_i
from theano.gof import FunctionGraph
from theano.tensor.blas import Dot22, Gemm, GemmOptimizer

import optdb
from optdb.host.api.session import optimizing
from optdb.topo import gemm
from optdb.topo.gemm import WholeSumGemm
from optdb.topo.translate import translate
from tests.effort import examples
from tests.topo.graphs import STOCK

A, B, C = tt.dmatrices("abc")
V = tt.dvector("v")
S = tt.dscalar("s")
VALUES = [np.random.RandomState(i).uniform(-1, 1, (3, 3)) for i in range(3)]
VALUES += [np.array([0.5, -1.0, 2.0]), np.array(1.5)]


def both(outputs, mode=STOCK, inputs=(A, B, C, V, S)):
    stock = theano.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    with optdb.enable():
        ours = theano.function(inputs, outputs, mode=mode, on_unused_input="ignore")
    return stock, ours


def count(f, cls):
    return sum(isinstance(node.op, cls) for node in f.maker.fgraph.toposort())


def operands():
    leaves = st.sampled_from([A, B, C, A.T, tt.dot(A, B), tt.dot(B, C), tt.dot(C.T, A), S * tt.dot(A, C), 2 * B])
    return st.recursive(
        leaves,
        lambda smaller: st.one_of(
            st.builds(tt.add, smaller, smaller),
            st.builds(tt.sub, smaller, smaller),
            st.builds(lambda a, b, c: a + b - c, smaller, smaller, smaller),
            st.builds(tt.neg, smaller),
            st.builds(lambda v: S * v, smaller),
            st.builds(tt.dot, smaller, smaller),
            st.builds(lambda v: tt.dot(v, V).dimshuffle(0, "x") + v, smaller),
        ),
        max_leaves=8,
    )


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.lists(operands(), min_size=1, max_size=2))
def test_values_stay_and_no_product_is_lost(outputs):
    """There are at least as many Gemms as in stock Theano, and at most as many nodes, except nodes for lengths."""
    stock, ours = both(outputs)
    assert count(ours, Gemm) >= count(stock, Gemm)
    nodes = [len(f.maker.fgraph.apply_nodes) - count(f, Shape_i) for f in (stock, ours)]
    assert nodes[1] <= nodes[0]
    plain = theano.function([A, B, C, V, S], outputs, mode=theano.Mode("py", None), on_unused_input="ignore")
    for right, mine in zip(plain(*VALUES), ours(*VALUES), strict=True):
        np.testing.assert_allclose(right, mine, rtol=1e-9, atol=1e-9)


@pytest.mark.slow_cases("True-40", "False-3", "False-40")
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 9, 40])
@pytest.mark.parametrize("nested", [True, False])
def test_a_sum_of_many_products(steps, nested):
    """A sum of products, written as one sum or as nested sums, becomes as many Gemms as in stock Theano."""
    products = [tt.dot(A * (i + 1), B) for i in range(steps)]
    total = sum(products[1:], products[0]) if nested else tt.add(*products)
    stock, ours = both([C + total])
    assert count(ours, Gemm) == count(stock, Gemm)
    assert count(ours, Dot22) == count(stock, Dot22)
    np.testing.assert_allclose(stock(*VALUES)[0], ours(*VALUES)[0])


def test_it_is_replaced_once():
    """One replacement converts a sum with any number of terms."""
    fgraph = FunctionGraph([A, B, C], [tt.add(C, *[tt.dot(A * i, B) for i in range(2, 12)])], clone=True)
    tt.opt.in2out(tt.blas.local_dot_to_dot22).optimize(fgraph)
    profile = WholeSumGemm().optimize(fgraph)
    assert profile[1] == 2, "and a round that finds nothing"
    assert profile[2] == 1
    stream = io.StringIO()
    WholeSumGemm.print_profile(stream, profile)
    assert "nb_replacement 1" in stream.getvalue()


def test_a_product_that_others_need_stays():
    product = tt.dot(A, B)
    _, ours = both([product + C, tt.exp(product)])
    assert count(ours, Gemm) == 0 and count(ours, Dot22) == 1


def test_a_shared_product_ends_the_pairing():
    """Terms before a product with other clients are still combined in pairs, as in stock Theano."""
    shared = tt.dot(B, C)
    outputs = [A + tt.dot(A, B) + C + shared, tt.exp(shared)]
    stock, ours = both(outputs)
    assert count(ours, Gemm) == count(stock, Gemm) == 1
    for right, mine in zip(stock(*VALUES), ours(*VALUES), strict=True):
        np.testing.assert_allclose(right, mine)


def test_a_product_that_is_added_twice():
    product = tt.dot(A, B)
    _, ours = both([product + C + product])
    np.testing.assert_allclose(ours(*VALUES)[0], 2 * VALUES[0].dot(VALUES[1]) + VALUES[2])


@pytest.mark.parametrize("dtype", ["int64", "int8", "float32"])
def test_an_operand_of_another_dtype_is_not_lost(dtype):
    """An integer operand stays in the sum, although Theano's own GemmOptimizer loses it."""
    other = tt.TensorType(dtype, (False, False))("other")
    out = tt.dot(A, B) + C + other
    with optdb.enable():
        f = theano.function([A, B, C, other], out, mode=STOCK)
    value = np.arange(9).reshape(3, 3).astype(dtype)
    np.testing.assert_allclose(f(*VALUES[:3], value), VALUES[0].dot(VALUES[1]) + VALUES[2] + value)


def test_a_factor_of_a_wider_dtype_prevents_it():
    a, b, c = tt.fmatrices("abc")
    out = tt.dot(a, b) * tt.constant(0.5, dtype="float64") + c
    with optdb.enable():
        f = theano.function([a, b, c], out, mode=STOCK)
    values = [value.astype("float32") for value in VALUES[:3]]
    result = f(*values)
    assert result.dtype == "float64"
    np.testing.assert_allclose(result, values[0].dot(values[1]) * 0.5 + values[2], rtol=1e-5)


def test_a_vector_sum():
    """A product of a matrix and a vector is computed by a Dot22 with reshaped operands, as in stock Theano."""
    stock, ours = both([tt.dot(A, V) * S + V])
    assert [type(n.op) for n in ours.maker.fgraph.toposort()] == [type(n.op) for n in stock.maker.fgraph.toposort()]
    np.testing.assert_allclose(stock(*VALUES)[0], ours(*VALUES)[0])


def test_only_theano_s_own_is_exchanged():
    class Mine(GemmOptimizer):
        pass

    assert type(translate(GemmOptimizer())) is WholeSumGemm
    mine = Mine()
    assert translate(mine) is mine


def test_a_graph_without_products_is_not_sorted(monkeypatch):
    fgraph = FunctionGraph([A, B], [A + B * 2], clone=True)
    monkeypatch.setattr(gemm, "order_by_data", lambda fgraph: pytest.fail("it was sorted"))
    with optimizing():
        WholeSumGemm().optimize(fgraph)
        with pytest.raises(pytest.fail.Exception):
            WholeSumGemm().optimize(FunctionGraph([A, B], [A + Dot22()(A, B)], clone=True))

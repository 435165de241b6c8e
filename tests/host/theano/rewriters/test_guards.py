"""A guard never rejects a node at which its rewriter would change something."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st

import optdb
from optdb.host.api.facts import facts_of
from optdb.host.api.rewriters import transform_of
from optdb.topo import rules
from tests.effort import examples
from tests.topo.graphs import STOCK

TRUE = tt.constant(np.ones((1, 1), "bool"))
UNARY = [
    tt.exp,
    tt.neg,
    tt.sqr,
    tt.erf,
    tt.erfc,
    tt.log,
    abs,
    tt.nnet.sigmoid,
    tt.nnet.softplus,
    tt.zeros_like,
    tt.ones_like,
    lambda a: 1 - a,
    lambda a: a + 1,
    lambda a: a * np.float32(2),
    lambda a: a.sum(keepdims=True) + a,
    lambda a: a.dimshuffle(1, 0).dimshuffle(1, 0),
    lambda a: tt.cast(a > 0, "int8"),
    lambda a: a[::-1][0:],
    lambda a: a[0:2, 1:],
    lambda a: a[:: a.shape[0]],
    lambda a: a[0 : a.shape[0] : 1],
    lambda a: a.reshape((1, a.size, 1)).sum() * a,
    lambda a: a.reshape((a.shape[1], a.shape[0])).T,
    lambda a: a.reshape((a[:1].shape[0], -1)).sum() + a,
    lambda a: a * tt.alloc(np.float32(0), *a.shape),
    lambda a: a + tt.alloc(np.float32(2), a.shape[1], a.shape[0]).T,
    lambda a: a * tt.switch(tt.constant(1) > 2, 0.0, 3.0),
    lambda a: a * tt.maximum(a.shape[0], 0) * tt.lt(a.shape[0] + a.shape[1], 0),
    lambda a: a * tt.eq(a.shape[0], -1) * tt.minimum(0, a.shape[1]),
    lambda a: tt.switch(tt.le(a.shape[0], 0), 0, a.shape[0]) * a,
    lambda a: tt.tanh(tt.arctanh(a)) * tt.inv(tt.inv(a)),
    lambda a: tt.and_(a > 0, TRUE) + tt.cast(tt.or_(a > 0, TRUE), "int8") + tt.xor(a > 0, a > 0),
    lambda a: 2 * (2 * a + 3 * tt.exp(a)),
    lambda a: (1 - tt.exp(a)) * tt.exp(-a) * 4,
    lambda a: (a - 1) / 2 / abs(a),
]
BINARY = [
    tt.add,
    tt.mul,
    tt.sub,
    tt.true_div,
    tt.second,
    tt.maximum,
    lambda a, b: (a / (abs(b) + 2) + b) * (abs(b) + 2),
    lambda a, b: tt.switch(a > 0, b, 0),
    lambda a, b: tt.switch(a > 0, a, b) + tt.switch(a > 0, b, 1),
    lambda a, b: a * (b - b + 0),
    lambda a, b: (a / b + b / abs(a)) * a * b,
    lambda a, b: a / (a * b + a),
    lambda a, b: tt.exp(-a) * -tt.nnet.sigmoid(a) * b,
    lambda a, b: (a / b.sum(axis=1, keepdims=True) + 1) * b.sum(axis=1, keepdims=True),
    lambda a, b: (tt.exp(a) + b) / tt.exp(a).sum(axis=1).dimshuffle(0, "x"),
    lambda a, b: tt.switch(tt.eq(a, a), a, b) + tt.switch(a > b, a, a),
    lambda a, b: a * tt.switch(a > b, 0, b) * tt.switch(a > b, b, np.zeros((1, 1))),
]
steps = st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 9), st.integers(0, 9))


@pytest.fixture
def checked(monkeypatch):
    """Call each rewriter even if its guard rejects the node; the rewriter must then change nothing."""
    held_back = []

    def transform_anyway(rewriter):
        guard, transform = facts_of(rewriter).guard, transform_of(rewriter)

        def transform_and_compare(node):
            offered = transform(node)
            if guard is not None and not guard(node):
                held_back.append(node)
                assert offered is None or offered is False, (rewriter, node)
            return offered

        return transform_and_compare

    without_guard = lambda rewriter: facts_of(rewriter)._replace(guard=None)  # noqa: E731
    monkeypatch.setattr(rules, "facts_of", without_guard)
    monkeypatch.setattr(rules, "transform_of", transform_anyway)
    return held_back


def compile_both(inputs, outputs):
    """Compile the outputs and their gradients with the engine."""
    outputs = [out.sum() for out in outputs]
    total = sum(tt.cast(out, "float64") for out in outputs)
    grads = theano.grad(total, inputs, disconnected_inputs="ignore")
    with np.errstate(all="ignore"):
        theano.function(inputs, [*outputs, *grads], mode=optdb.mode(STOCK), on_unused_input="ignore")


@pytest.mark.slow
def test_on_each_operation_and_its_gradient(checked):
    x, y = tt.dmatrix("x"), tt.fmatrix("y")
    compile_both([x, y], [make(var) for make in UNARY for var in (x, y)])
    compile_both([x, y], [make(a, b) for make in BINARY for a, b in ((x, y), (y, x), (x, x))])
    assert checked, "guards held something back"


@pytest.mark.slow
def test_on_random_graphs(checked):
    @settings(max_examples=examples(25))
    @given(st.lists(steps, min_size=3, max_size=8))
    def compile_graph(build):
        x, y = tt.dmatrix("x"), tt.fmatrix("y")
        pool = [x, y, tt.constant(np.zeros((1, 1)))]
        for kind, first, second in build:
            a, b = pool[first % len(pool)], pool[second % len(pool)]
            pool.append(UNARY[kind](a) if kind < len(UNARY) else BINARY[kind - len(UNARY)](a, b))
        compile_both([x, y], pool[-3:])

    compile_graph()


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), (0, 1, 2)])
def test_a_factor_stays_within_a_product_of_some_axes(axis):
    """A wrong rewriter of Theano 1.0.5 moves the factor out of the product, raised to the total number of elements."""
    value = np.random.default_rng(1).uniform(0.5, 1.5, (3, 5, 2))
    x = tt.dtensor3("x")
    outputs = [(-x).prod(axis=axis), (2 * x).prod(axis=axis), (x * x[0, 0, 0]).prod(axis=axis)]
    f = theano.function([x], outputs, mode=optdb.mode(theano.Mode("py", "fast_run")))
    for got, factor in zip(f(value), (-1, 2, value[0, 0, 0]), strict=True):
        np.testing.assert_allclose(got, np.prod(factor * value, axis=axis))


def test_what_is_not_known_has_no_guard():
    assert facts_of(theano.tensor.opt.local_mul_to_sqr).guard is None
    assert facts_of(theano.tensor.opt.local_one_minus_erf).guard is not None

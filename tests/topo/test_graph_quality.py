"""The optimized graph has no more nodes than the graph of Theano's own optimizer."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.tensor.signal.pool import pool_2d

import optdb
from tests.effort import examples
from tests.topo.graphs import PLAIN, STOCK


def dirichlet_density():
    """Return the log density of Dirichlet(1, 1, 1) in stick-breaking coordinates, and its gradient."""
    alpha = tt.as_tensor_variable(np.ones(3))
    sticks = tt.dvector("sticks")
    logits = tt.concatenate([sticks, -sticks.sum(0, keepdims=True)])
    weights = tt.exp(logits - logits.max(0, keepdims=True))
    weights = tt.clip(weights / weights.sum(0, keepdims=True), 1e-15, 1 - 1e-15)
    exponent = alpha - 1
    of_zero = tt.switch(tt.eq(exponent, 0), 0.0, -np.inf)
    power = tt.switch(tt.eq(weights, 0), of_zero, exponent * tt.log(weights))
    density = tt.sum(power - tt.gammaln(alpha)) + tt.gammaln(alpha.sum())
    valid = 1 * tt.all(weights >= 0) * (1 * tt.all(weights <= 1)) * (1 * tt.all(alpha > 0))
    total = tt.switch(valid, density, -np.inf) + sticks.sum() * (sticks.shape[0] + 1)
    return [sticks], [total, tt.grad(total, sticks)]


def product_of_a_constant_zero():
    """Return a graph that multiplies and divides a zero, known only after folding, by switches."""
    x, c = tt.dvector("x"), tt.dscalar("c")
    zero = tt.as_tensor_variable(np.ones(3)) - 1
    return [x, c], [(zero * tt.switch(c > 0, x, tt.exp(x))).sum() + (zero / tt.switch(c > 0, 2.0, x)).sum() + c]


def products_of_joins():
    """Return an expression with a cumulative product of joined parts, and its gradient."""
    x, y = tt.dvector("x"), tt.dvector("y")
    parts = tt.concatenate([x, y, x * 2])
    left = tt.extra_ops.cumprod(1 - parts)
    out = (tt.concatenate([[1.0], left[:-1]]) * parts).sum()
    return [x, y], [out, *tt.grad(out, [x, y])]


def residuals_of_ratings():
    """Return a graph with a difference that stock Theano computes twice and fuses into each of its users."""
    x, y = tt.dvector("x"), tt.dvector("y")
    precision = tt.exp(x)
    residual = np.array([0.5, -1.0, 2.0]) - (x * y.sum())
    out = (-0.5 * 4.0 * tt.sqr(residual)).sum() + (tt.sqr(precision - 1) / precision).sum()
    return [x, y], [out, *tt.grad(out, [x, y])]


def batches_of_joined_windows():
    """Return windows of a signal, joined and each multiplied by its matrix, as in Keras's locally connected layers."""
    x, w = tt.dtensor3("signal"), theano.shared(np.arange(72.0).reshape(3, 12, 2))
    windows = tt.concatenate([x[:, i : i + 3].reshape((1, -1, 12)) for i in range(3)])
    return [x], [tt.basic.batched_tensordot(windows, w, [[2], [1]])]


def mean_of_batches():
    """Return expressions with quotients that stock Theano computes for each example of a batch instead of once."""
    x, y = tt.dmatrix("m"), tt.dvector("y")
    out = (tt.nnet.sigmoid(x.dot(tt.outer(y[:2], y[:2]))) / 16.0).mean(axis=-1)
    loss = (-0.5 * tt.sum(1 + x - tt.sqr(x) - tt.exp(x), axis=-1) + out).mean()
    return [x, y], [loss, tt.grad(loss, x), tt.grad(loss, y)]


def student_density():
    """Return a sum over observations, with a scalar term that contains several special functions."""
    nu, sigma = tt.dscalar("c"), tt.dscalar("sigma")
    data = tt.constant(np.array([0.5, -1.0, 2.0]))
    scale = sigma**-2.0
    norm = tt.gammaln((nu + 1.0) / 2.0) + 0.5 * tt.log(scale / (nu * np.pi)) - tt.gammaln(nu / 2.0)
    density = norm - (nu + 1.0) / 2.0 * tt.log1p(scale * data**2 / nu)
    return [nu, sigma], [tt.switch(tt.all([scale > 0, nu > 0]), density, -np.inf).sum()]


def squeezed(x, axis):
    """Remove an axis of length 1 by a reshape, as Keras does."""
    lengths = list(x.shape)
    del lengths[axis]
    return x.reshape(tuple(lengths))


def pooled_frames():
    """Return a loop over the frames of a pooled, transposed signal of known length, as in Keras, and its gradient."""
    x, weights = tt.dtensor3("signal"), theano.shared(np.arange(4.0))
    frames = x.reshape((x.shape[0], 6, 4))
    pooled = pool_2d(frames.dimshuffle(0, 2, 1, "x"), (2, 1), ignore_border=True).dimshuffle(0, 2, 3, 1)
    out = theano.scan(
        lambda frame, total: total + tt.sqr(frame * weights),
        squeezed(pooled, 2).dimshuffle(1, 0, 2),
        tt.zeros((x.shape[0], 4)),
    )[0][-1].sum()
    return [x], [out, tt.grad(out, x)]


VALUES = {
    "m": np.array([[0.2, -0.4], [0.9, 0.1], [-1.0, 0.3]]),
    "x": np.array([0.3, 0.1, 0.7]),
    "y": np.array([0.2, 0.9]),
    "c": 1.5,
    "sigma": 0.8,
    "signal": np.linspace(-1, 1, 48).reshape(2, 6, 4),
    "sticks": np.array([0.4, -0.3]),
}


@pytest.mark.slow_cases("dirichlet_density")
@pytest.mark.parametrize(
    "build",
    [
        dirichlet_density,
        product_of_a_constant_zero,
        products_of_joins,
        residuals_of_ratings,
        batches_of_joined_windows,
        mean_of_batches,
        pooled_frames,
        student_density,
    ],
)
def test_it_is_no_larger_than_theanos(build):
    inputs, outputs = build()
    stock = theano.function(inputs, outputs, mode=STOCK)
    ours = theano.function(inputs, outputs, mode=optdb.mode(STOCK))
    assert len(ours.maker.fgraph.apply_nodes) <= len(stock.maker.fgraph.apply_nodes)
    plain = theano.function(inputs, outputs, mode=PLAIN)
    arguments = [VALUES[var.name] for var in inputs]
    for mine, expected in zip(ours(*arguments), plain(*arguments), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-10)


def test_a_product_of_zero_does_not_sink_into_a_switch():
    inputs, outputs = product_of_a_constant_zero()
    f = theano.function(inputs, outputs, mode=optdb.mode(STOCK))
    assert f.maker.fgraph.outputs[0].owner.inputs[0].owner is None
    assert len(f.maker.fgraph.apply_nodes) <= 2


@st.composite
def densities(draw):
    """Draw a sum of arithmetic expressions that share parts, as in log densities, and its gradients."""
    x, y, c = tt.dvector("x"), tt.dvector("y"), tt.dscalar("c")
    pool = [x, y.sum(), c, tt.constant(np.array([0.5, -1.0, 2.0]))]
    steps = [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        lambda a, b: a / (1 + tt.sqr(b)),
        lambda a, b: tt.switch(a > b, a, 0.0) / 2,
        lambda a, b: tt.exp(-tt.sqr(a)) * b,
        lambda a, b: tt.log1p(tt.sqr(a)) - b,
        lambda a, b: tt.clip(a, -1, 1) * (b - 1),
    ]
    for _ in range(draw(st.integers(2, 8))):
        first, second = (pool[draw(st.integers(max(0, len(pool) - 4), len(pool) - 1))] for _ in "ab")
        pool.append(draw(st.sampled_from(steps))(first, second))
    total = sum(part.sum() for part in pool[4:])
    return [x, y, c], [total, *tt.grad(total, [x, c], disconnected_inputs="ignore")]


@pytest.mark.slow
@settings(max_examples=examples(12))
@given(densities())
def test_a_density_and_its_gradient_are_no_larger_than_theanos(graph):
    inputs, outputs = graph
    stock = theano.function(inputs, outputs, mode=STOCK, on_unused_input="ignore")
    ours = theano.function(inputs, outputs, mode=optdb.mode(STOCK), on_unused_input="ignore")
    assert len(ours.maker.fgraph.apply_nodes) <= len(stock.maker.fgraph.apply_nodes)
    arguments = [VALUES[var.name] for var in inputs]
    for mine, expected in zip(ours(*arguments), stock(*arguments), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-10, atol=1e-12)

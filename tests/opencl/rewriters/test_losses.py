"""One node computes cross entropies and their gradients, if nothing else uses the softmax and results stay the same."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.ifelse import ifelse
from theano.tensor.nnet import nnet

from optdb.opencl.ops.softmax import OpenCLCrossentropyAndGradient, OpenCLCrossentropySoftmax1HotWithBiasDx
from tests.effort import examples

HOST = theano.Mode("py", "fast_compile")
LIFTED, LAZY = (theano.Mode(linker, "fast_run").including("opencl") for linker in ("py", "vm"))

pytestmark = pytest.mark.usefixtures("default", "engine_where_quick", "each_device_kind")

x, b, y, c, g = tt.dmatrix("x"), tt.dvector("b"), tt.lvector("y"), tt.dscalar("c"), tt.dvector("g")
INPUTS = [x, b, y, c, g]


def values_of(rows=5, columns=7, seed=0):
    rng = np.random.RandomState(seed)
    sizes = ((rows, columns), (columns,))
    matrix, bias = (rng.uniform(-3, 3, size) for size in sizes)
    return [matrix, bias, rng.randint(0, columns, rows), 0.5, rng.uniform(-1, 1, rows)]


def function(mode, *outputs):
    """Return a function of a matrix that the device computes as a product, so that everything after it is lifted."""
    product = x.dot(tt.eye(x.shape[1]) * 1.5)
    return theano.function(INPUTS, theano.clone(list(outputs), {x: product}), mode=mode, on_unused_input="ignore")


def count(*outputs, values=None):
    """Compare with the host; return the numbers of nodes that compute entropies and gradients, or only gradients."""
    values = values or values_of()
    want = function(HOST, *outputs)(*values)
    f = function(LIFTED, *outputs)
    for _ in range(2):
        for one, other in zip(f(*values), want, strict=True):
            assert np.asarray(one).dtype == np.asarray(other).dtype
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)
    nodes = f.maker.fgraph.toposort()
    kinds = OpenCLCrossentropyAndGradient, OpenCLCrossentropySoftmax1HotWithBiasDx
    return [sum(type(node.op) is kind for node in nodes) for kind in kinds]


def entropies():
    return nnet.crossentropy_softmax_argmax_1hot_with_bias(x, b, y)


def dx(of, softmax):
    return nnet.crossentropy_softmax_1hot_with_bias_dx(of, softmax, y)


@pytest.mark.thorough_cases("gpu-2-1500")
@pytest.mark.parametrize("rows, columns", [(5, 7), (1, 1), (3, 1), (2, 1500), (300, 2), (0, 4)])
def test_one_gradient_for_all_rows_and_one_for_each(rows, columns):
    loss, softmax, likeliest = entropies()
    for gradient in (c, g, g[::-1], g[:1]):
        if rows != 1 or gradient is not g[:1]:
            assert count(loss, dx(gradient, softmax), likeliest, values=values_of(rows, columns)) == [1, 0]


def test_a_net():
    """The matrix is a view, and the graph has gradients with respect to the matrix and to the bias."""
    loss = nnet.categorical_crossentropy(nnet.softmax(x[::-1] + b), y)
    for cost in (loss.mean(), (c * loss).sum(), (g * loss).sum()):
        assert count(cost, *theano.grad(cost, [x, b])) == [1, 0]


def test_softmax_that_is_needed_for_something_else():
    loss, softmax, _ = entropies()
    assert count(loss, softmax, dx(c, softmax)) == [0, 1]
    assert count(loss, softmax.max(axis=1), dx(c, softmax)) == [0, 1]
    assert count(loss, dx(c, softmax), dx(g, softmax)) == [0, 2]


def test_gradients_that_depend_on_the_entropies():
    loss, softmax, likeliest = entropies()
    assert count(dx(loss, softmax)) == [0, 1]
    assert count(dx(loss.sum() * c, softmax)) == [0, 1]
    assert count(dx(tt.cast(likeliest, "float64"), softmax)) == [0, 1]


def test_other_classes_and_other_softmaxes():
    loss, softmax, _ = entropies()
    assert count(loss, nnet.crossentropy_softmax_1hot_with_bias_dx(c, softmax, y[::-1])) == [0, 1]
    assert count(loss, dx(c, nnet.softmax(x) * 1.0)) == [0, 1]


def test_a_branch_that_is_not_taken_computes_no_gradient():
    loss, softmax, _ = entropies()
    chosen = ifelse(tt.gt(c, 0), dx(g, softmax), x)
    f = function(LAZY, loss, chosen)
    values = values_of()
    np.testing.assert_allclose(f(*values)[1], function(HOST, chosen)(*values)[0])
    kept = f(*values[:3], -1.0, np.ones(3))
    np.testing.assert_array_equal(kept[1], values[0] * 1.5)


def test_half_numbers_keep_the_softmax_that_is_rounded():
    half, bias, scale = (tt.TensorType("float16", (False,) * ndim)() for ndim in (2, 1, 0))
    product = half.dot(tt.eye(half.shape[1], dtype="float16"))
    loss, softmax, _ = nnet.crossentropy_softmax_argmax_1hot_with_bias(product, bias, y)
    f = theano.function([half, bias, y, scale], [loss, dx(scale, softmax)], mode=LIFTED)
    kinds = [type(node.op) for node in f.maker.fgraph.toposort()]
    assert OpenCLCrossentropySoftmax1HotWithBiasDx in kinds
    assert OpenCLCrossentropyAndGradient not in kinds


def test_what_is_wrong_is_refused():
    loss, softmax, _ = entropies()
    f = function(LIFTED, loss, dx(g, softmax))
    matrix, bias, classes, scale, gradients = values_of()
    with pytest.raises(ValueError, match="y_i value out of bounds: class 7 of 7"):
        f(matrix, bias, classes * 0 + 7, scale, gradients)
    with pytest.raises(ValueError, match="has 4 gradients for 5 rows"):
        f(matrix, bias, classes, scale, gradients[:4])
    with pytest.raises(ValueError, match="has a bias of 6 numbers for 7 columns"):
        f(matrix, bias[:6], classes, scale, gradients)
    with pytest.raises(ValueError, match="has 4 classes for 5 rows"):
        f(matrix, bias, classes[:4], scale, gradients)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_numbers_that_are_not_finite(value):
    loss, softmax, _ = entropies()
    matrix, *others = values_of()
    matrix[1, 2] = value
    with np.errstate(invalid="ignore"):
        assert count(loss, dx(g, softmax), values=[matrix, *others]) == [1, 0]


@settings(max_examples=examples(8))
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 99), st.booleans())
def test_random_sizes(rows, columns, seed, is_turned):
    matrix = x[:, ::-1] if is_turned else x
    loss, softmax, likeliest = nnet.crossentropy_softmax_argmax_1hot_with_bias(matrix, b, y)
    assert count(loss, dx(g, softmax), likeliest, values=values_of(rows, columns, seed)) == [1, 0]

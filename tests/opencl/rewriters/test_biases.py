"""A product adds a bias if nothing else uses the product, and if the result stays the same."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.ifelse import ifelse

from optdb.opencl.ops.blas import OpenCLBiasedDot22, OpenCLDot22
from optdb.opencl.rewriters import epilogues

HOST = theano.Mode("py", "fast_compile")
LIFTED = theano.Mode("py", "fast_run").including("opencl")
RNG = np.random.RandomState(2)

pytestmark = pytest.mark.usefixtures("default")

x, w, b, c = tt.dmatrix("x"), tt.dmatrix("w"), tt.dvector("b"), tt.dscalar("c")
x3 = tt.dtensor3("x3")


@pytest.fixture(autouse=True)
def like_a_gpu(monkeypatch):
    monkeypatch.setattr(epilogues, "is_quicker", lambda kind: True)


def count(*outputs, shape=(6, 5, 4)):
    """Compute on the host and on the device; return the numbers of products with a bias and without one."""
    rows, inner, cols = shape
    values = [RNG.uniform(-1, 1, size) for size in ((rows, inner), (inner, cols), (cols,), (), (2, rows, inner))]
    inputs = [x, w, b, c, x3]
    want = theano.function(inputs, outputs, mode=HOST, on_unused_input="ignore")(*values)
    f = theano.function(inputs, outputs, mode=LIFTED, on_unused_input="ignore")
    for _ in range(2):
        for one, other in zip(f(*values), want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)
    nodes = f.maker.fgraph.toposort()
    return [sum(type(node.op) is kind for node in nodes) for kind in (OpenCLBiasedDot22, OpenCLDot22)]


def test_a_bias_alone():
    assert count(x.dot(w) + b) == [1, 0]
    assert count(b + x.dot(w), shape=(70, 130, 65)) == [1, 0]


def test_rows_of_several_axes():
    assert count(x3.dot(w) + b) == [1, 0]
    assert count(tt.nnet.softmax((x3.dot(w) + b).reshape((-1, w.shape[1]))))[0] == 1


def test_a_bias_that_is_a_view_or_too_long():
    assert count(x.dot(w) + b[::-1]) == [1, 0]
    f = theano.function([x, w, b], x.dot(w) + b, mode=LIFTED)
    with pytest.raises(ValueError, match="adds a vector of 3 elements to rows of 4"):
        f(np.ones((2, 5)), np.ones((5, 4)), np.ones(3))


def test_activations_add_the_bias_themselves():
    assert count(tt.tanh(x.dot(w) + b)) == [0, 1]


def test_products_that_others_want_and_other_sums():
    product = x.dot(w)
    assert count(product + b, tt.exp(product)) == [0, 1]
    assert count(product + b, product) == [0, 1]
    assert count(product + c)[0] == 0
    assert count(x.dot(w) + b.dimshuffle(0, "x"), shape=(4, 5, 4))[0] == 0
    assert count(x.dot(w) - b)[0] == 0


def test_a_reshape_of_other_rows():
    """A reshape splits each row of the product in two, so the bias repeats within a row of the product."""
    columns = x.dot(w).reshape((x.shape[0] * 2, b.shape[0]))
    for shape in ((6, 5, 4), (2, 3, 8)):
        rows, inner, cols = shape
        values = [RNG.uniform(-1, 1, size) for size in ((rows, inner), (inner, cols), (cols // 2,))]
        want, got = (theano.function([x, w, b], columns + b, mode=mode)(*values) for mode in (HOST, LIFTED))
        np.testing.assert_allclose(got, want, rtol=1e-11)


def test_a_branch_that_is_not_taken():
    condition = tt.iscalar("condition")
    out = ifelse(condition, x.dot(w) + b, x.dot(w) * 2)
    values = [RNG.uniform(-1, 1, size) for size in ((3, 4), (4, 5), (5,))]
    host, lifted = (theano.function([condition, x, w, b], out, mode=mode) for mode in (HOST, LIFTED))
    for chosen in (0, 1, 1, 0):
        np.testing.assert_allclose(lifted(chosen, *values), host(chosen, *values), rtol=1e-11)

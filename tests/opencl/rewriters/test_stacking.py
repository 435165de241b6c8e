"""A sum of many products becomes one product of joined matrices, if the result stays the same."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.ifelse import ifelse

from optdb.opencl.ops.blas import OpenCLDot22, OpenCLGemm, OpenCLStackedDot22
from optdb.opencl.ops.parts import OpenCLJoin
from optdb.opencl.ops.views import OpenCLReshape
from optdb.opencl.rewriters import stacking

HOST = theano.Mode("py", "merge")
LIFTED = theano.Mode("py", "fast_run").including("opencl")
RNG = np.random.RandomState(3)
COUNT = 9

pytestmark = pytest.mark.usefixtures("default", "engine_where_quick")


#: The original function, which most tests replace by a function that does not depend on the device's speed.
IS_QUICKER = stacking.is_quicker


@pytest.fixture(autouse=True)
def like_a_gpu(monkeypatch):
    monkeypatch.setattr(stacking, "is_quicker", lambda kind: True)


xs = [tt.dmatrix(f"x{i}") for i in range(COUNT)]
ys = [tt.dmatrix(f"y{i}") for i in range(COUNT)]
z = tt.dmatrix("z")


def count(outputs, shapes_of_x, shapes_of_y, shape_of_z=(5, 6)):
    """Compare device and host; count joins, products of joined matrices, other products, and Gemms."""
    inputs = [*xs, *ys, z]
    values = [RNG.uniform(-1, 1, shape) for shape in (*shapes_of_x, *shapes_of_y, shape_of_z)]
    expected = theano.function(inputs, outputs, mode=HOST, on_unused_input="ignore")(*values)
    f = theano.function(inputs, outputs, mode=LIFTED, on_unused_input="ignore")
    for _ in range(3):
        for one, other in zip(f(*values), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    kinds = [type(node.op) for node in f.maker.fgraph.toposort()]
    return [kinds.count(kind) for kind in (OpenCLJoin, OpenCLStackedDot22, OpenCLDot22, OpenCLGemm)]


def summed(terms):
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


PLAIN = [(5, n % 4) for n in range(COUNT)], [(n % 4, 6) for n in range(COUNT)]
SWAPPED = [[shape[::-1] for shape in shapes] for shapes in PLAIN]


def test_a_sum_of_products():
    assert count([summed([x.dot(y) for x, y in zip(xs, ys)])], *PLAIN) == [2, 1, 0, 0]


def test_products_of_transposed_matrices():
    assert count([summed([x.T.dot(y) for x, y in zip(xs, ys)])], SWAPPED[0], PLAIN[1]) == [2, 1, 0, 0]
    assert count([summed([x.T.dot(y.T) for x, y in zip(xs, ys)])], *SWAPPED) == [2, 1, 0, 0]
    mixed = [x.T if n % 2 else x for n, x in enumerate(xs)]
    shapes = [shape[::-1] if n % 2 else shape for n, shape in enumerate(PLAIN[0])]
    assert count([summed([x.dot(y) for x, y in zip(mixed, ys)])], shapes, PLAIN[1]) == [2, 1, 0, 0]


def test_other_terms_are_added():
    terms = [z, *[x.dot(y) for x, y in zip(xs, ys)], tt.tanh(z)]
    assert count([summed(terms)], *PLAIN) == [2, 1, 0, 0]


def test_sums_share_joined_matrices():
    square = [(4, 4)] * COUNT
    outputs = [summed([x.T.dot(y) for x, y in zip(xs, ys)]), summed([x.T.dot(x) for x in xs])]
    assert count(outputs, square, square, (4, 4))[:2] == [2, 2]


def test_the_gradient_of_a_net_whose_steps_are_written_out():
    w, h, grads = z, xs[0], []
    for x in xs:
        h = tt.tanh(x + h.dot(w))
    grads = tt.grad(h.sum(), w)
    square = [(4, 4)] * COUNT
    assert count([grads], square, square, (4, 4))[0] == 2


@pytest.mark.parametrize(
    "outputs",
    [
        [summed([x.dot(y) for x, y in zip(xs[:4], ys[:4])])],  # too few products
        [summed([2 * x.dot(y) for x, y in zip(xs, ys)])],  # products with factors
        [summed([x.dot(y) for x, y in zip(xs, ys)]), *[x.dot(y) for x, y in zip(xs, ys)]],  # also used elsewhere
        [summed([tt.tanh(x.dot(y)) for x, y in zip(xs, ys)])],
        [summed([x.dot(y) for x, y in zip(xs, ys)]) + z.sum(axis=0)],
        [summed([x.dot(y).T for x, y in zip(xs, ys)])],
    ],
)
def test_other_sums_compute_the_same(outputs):
    count(outputs, *PLAIN)


def test_lengths_that_do_not_fit_are_refused():
    shapes = [(5, 3)] * COUNT, [(3, 6)] * (COUNT - 1) + [(3, 7)]
    with pytest.raises(ValueError, match="shape"):
        count([summed([x.dot(y) for x, y in zip(xs, ys)])], *shapes)
    f = theano.function([*xs, *ys], summed([x.dot(y) for x, y in zip(xs, ys)]), mode=LIFTED)
    with pytest.raises(ValueError, match="whose other lengths are equal"):
        f(*[np.ones(shape) for shape in (*shapes[0], *shapes[1])])
    # The shapes of the joined matrices would fit, but those of the separate matrices do not.
    shapes = [(5, 3), (5, 2)] + [(5, 1)] * (COUNT - 2), [(2, 6), (3, 6)] + [(1, 6)] * (COUNT - 2)
    with pytest.raises(ValueError, match=r"a product of \(5, 3\) and \(2, 6\)"):
        f(*[np.ones(shape) for shape in (*shapes[0], *shapes[1])])


def test_steps_are_multiplied_with_a_weight_before_the_first_one():
    steps, w, u = tt.dtensor3("steps"), tt.dmatrix("w"), tt.dmatrix("u")
    numbers = [3, 0, 5, 2, 8, 7, 1, 6, -3]
    h = tt.zeros((5, 4))
    for number in numbers:
        h = tt.tanh(steps[number].dot(w) + h.dot(u)) * steps[number].dot(u)
    outputs = [h, *tt.grad(h.sum(), [w, u])]
    values = [RNG.uniform(-1, 1, shape) for shape in ((10, 5, 4), (4, 4), (4, 4))]
    expected = theano.function([steps, w, u], outputs, mode=HOST)(*values)
    f = theano.function([steps, w, u], outputs, mode=LIFTED)
    for _ in range(3):
        for one, other in zip(f(*values), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    kinds = [type(node.op) for node in f.maker.fgraph.toposort()]
    assert kinds.count(OpenCLReshape) == 2 and kinds.count(OpenCLStackedDot22) >= 1
    with pytest.raises(IndexError):
        f(values[0][:7], *values[1:])


def test_steps_of_a_branch_that_is_not_taken_are_not_read():
    steps, w, takes_first = tt.dtensor3("steps"), tt.dmatrix("w"), tt.iscalar("takes_first")
    few, many = (summed([tt.tanh(steps[n].dot(w)) for n in numbers]) for numbers in (range(4), range(4, 10)))
    longer = summed([tt.tanh(steps[n].dot(w)) for n in range(9)])
    lazy = theano.Mode("vm", "fast_run").including("opencl")
    f, g = (
        theano.function([steps, w, takes_first], ifelse(tt.gt(takes_first, 0), few, x), mode=lazy)
        for x in (many, longer)
    )
    values = RNG.uniform(-1, 1, (9, 4, 4)), RNG.uniform(-1, 1, (4, 4))
    for function in (f, g):
        np.testing.assert_allclose(function(values[0][:4], values[1], 1), np.tanh(values[0][:4] @ values[1]).sum(0))
        with pytest.raises(IndexError):
            function(values[0][:4], values[1], 0)
    np.testing.assert_allclose(g(*values, 0), np.tanh(values[0] @ values[1]).sum(0))


def test_a_processor_keeps_small_products(monkeypatch, as_a_processor):
    monkeypatch.setattr(stacking, "is_quicker", IS_QUICKER)
    assert count([summed([x.dot(y) for x, y in zip(xs, ys)])], *PLAIN)[:2] == [0, 0]

"""Loops on the device can have no steps, or arrays without elements along an axis."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import theano
import theano.tensor as tt

import optdb

pytestmark = pytest.mark.usefixtures("default", "engine_where_quick")

REFERENCE = theano.Mode("py", None)
SHAPES = [(3, 2, 0), (3, 0, 2), (1, 2, 0), (3, 0, 0), (0, 2, 3), (0, 0, 3), (3, 2, 2)]


def _last_of_sums(x):
    return theano.scan(lambda s, h: tt.tanh(s + h), sequences=x, outputs_info=tt.zeros_like(x[0]))[0]


def _all_of_products(x):
    w = theano.shared(np.full((3, 2), 0.5), "w")
    start = tt.zeros((x.shape[1], 2), x.dtype)
    return theano.scan(lambda s, h: tt.tanh(s.dot(w[: s.shape[1]])) + h, sequences=x, outputs_info=start)[0]


def _maps(x):
    return theano.map(lambda s: s * 2 + 1, x)[0]


def _two_taps(x):
    first = tt.zeros((2, x.shape[1], x.shape[2]), x.dtype)
    return theano.scan(lambda s, a, b: s + a - b, sequences=x, outputs_info={"initial": first, "taps": [-2, -1]})[0]


def _compiled(way, inputs, outputs):
    if way == "mode":
        return theano.function(inputs, outputs, mode=optdb.mode(device="dev0"))
    return optdb.SimulatorOCL(theano.function(inputs, outputs, mode=theano.Mode("py", "fast_run")), "dev0")


def _compare(f, expected, *args):
    """Compare a call with the reference; if the reference rejects a loop without steps, the call can raise or not."""
    try:
        wanted = expected(*args)
    except NotImplementedError:
        with contextlib.suppress(NotImplementedError):
            f(*args)
        return
    for ours, theirs in zip(f(*args), wanted, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


@pytest.mark.slow_cases(
    "_last_of_sums-mode", "_last_of_sums-simulator", "_all_of_products-mode", "_all_of_products-simulator", "_maps-mode"
)
@pytest.mark.parametrize("way", ["mode", "simulator"])
@pytest.mark.parametrize("loop", [_last_of_sums, _all_of_products, _maps, _two_taps])
def test_loops_over_nothing_and_their_gradients(loop, way):
    x = tt.tensor3("x", "float64")
    out = loop(x)
    outputs = [out, theano.grad((out**2).sum(), x)]
    # Without C: Theano's C code for products rejects the strides of NumPy's empty arrays.
    with theano.change_flags(cxx=""):
        expected, f = theano.function([x], outputs, mode=REFERENCE), _compiled(way, [x], outputs)
    for shape in SHAPES:
        if shape[0] == 0 and loop is _last_of_sums:
            continue  # there is no x[0]
        value = np.random.RandomState(0).standard_normal(shape)
        for _ in range(3):  # recorded, planned and repeated
            _compare(f, expected, value)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["mode", "simulator"])
def test_loops_of_no_steps(way):
    x, steps = tt.dmatrix("x"), tt.lscalar("steps")
    out = theano.scan(lambda h: tt.tanh(h) + 1, outputs_info=x, n_steps=steps)[0]
    outputs = [out, theano.grad(out.sum(), x)]
    expected, f = theano.function([x, steps], outputs, mode=REFERENCE), _compiled(way, [x, steps], outputs)
    for shape in ((2, 3), (0, 3), (2, 0)):
        for number in (0, 3, 0, 0, 1):
            _compare(f, expected, np.ones(shape), number)

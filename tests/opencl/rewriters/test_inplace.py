"""Device ops overwrite their inputs exactly where this is allowed."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.scalar import Inv
from theano.scan_module.scan_op import Scan
from theano.tensor import blas

import optdb
from optdb.opencl.ops.blas import OpenCLGemm, OpenCLGemv, OpenCLGer
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.parts import OpenCLAdvancedIncSubtensor1, OpenCLIncSubtensor

pytestmark = pytest.mark.optimized

ENGINES = {"stock": lambda mode: mode, "engine": optdb.mode}


@pytest.fixture(params=ENGINES)
def mode(request, default):
    lifting = theano.Mode("py", "fast_run").including("opencl").excluding("fusion")
    return ENGINES[request.param](lifting)


def node_of(function, kind):
    (node,) = [node for node in function.maker.fgraph.toposort() if isinstance(node.op, kind)]
    return node


def test_what_was_computed_is_overwritten_and_inputs_are_not(mode):
    x = tt.fmatrix()
    a = np.arange(6, dtype="float32").reshape(2, 3)
    f = theano.function([x], tt.exp(tt.dot(x, x.T)), mode=mode)
    assert node_of(f, OpenCLElemwise).op.inplace_pattern == {0: 0}
    for _ in range(2):
        np.testing.assert_allclose(f(a * 0.1), np.exp(0.01 * a @ a.T), rtol=1e-5)
    there = x.transfer("dev0")
    g = theano.function([x], [there.sum(axis=0), OpenCLElemwise(theano.scalar.exp)(there), there], mode=mode)
    np.testing.assert_array_equal(np.asarray(g(a)[2]), a)
    assert node_of(g, OpenCLElemwise).op.inplace_pattern == {}


def test_a_number_is_not_overwritten_lest_its_readers_come_first(default):
    x = tt.fmatrix()
    total = x.sum()
    mode = ENGINES["engine"](theano.Mode("py", "fast_run").including("opencl").excluding("fusion"))
    f = theano.function([x], [x * total, tt.inv(total)], mode=mode)
    inverse = next(node for node in f.maker.fgraph.toposort() if isinstance(getattr(node.op, "scalar_op", None), Inv))
    assert isinstance(inverse.op, OpenCLElemwise) and inverse.op.inplace_pattern == {}
    a = np.arange(6, dtype="float32").reshape(2, 3)
    for got, expected in zip(f(a), (a * 15, 1 / 15)):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_an_update_overwrites_its_shared_variable(mode):
    w = theano.shared(np.ones(4, "float32"), target="dev0")
    f = theano.function([], [], updates=[(w, w * np.float32(2))], mode=mode)
    buffer = w.get_value(borrow=True, return_internal_type=True).base_data
    f()
    np.testing.assert_array_equal(w.get_value(), [2] * 4)
    (overwritten,) = node_of(f, OpenCLElemwise).op.inplace_pattern.values()
    assert node_of(f, OpenCLElemwise).inputs[overwritten].owner is None
    assert w.get_value(borrow=True, return_internal_type=True).base_data is buffer


@pytest.mark.slow_cases("stock")
def test_products_and_parts(mode):
    x, v, i = tt.fmatrix(), tt.fvector(), tt.lvector()
    a, b, rows = np.arange(9, dtype="float32").reshape(3, 3), np.ones(3, "float32"), np.array([0, 0])
    one = np.float32(1)
    cases = [
        (OpenCLGemm, blas.gemm_no_inplace(x * 2, one, x, x, one), 2 * a + a @ a),
        (OpenCLGemv, blas.gemv_no_inplace(v * 2, one, x, v, one), 2 * b + a @ b),
        (OpenCLGer, blas.ger(x * 2, one, v, v), 2 * a + 1),
        (OpenCLIncSubtensor, tt.dot(tt.inc_subtensor((x * 2)[1:], v), x), (2 * a + np.array([[0], [1], [1]])) @ a),
        (
            OpenCLAdvancedIncSubtensor1,
            tt.dot(tt.inc_subtensor((x * 2)[i], v), x),
            (2 * a + np.array([[2], [0], [0]])) @ a,
        ),
    ]
    for kind, out, want in cases:
        f = theano.function([x, v, i], out, mode=mode, on_unused_input="ignore")
        assert node_of(f, kind).op.destroy_map == {0: [0]}, kind
        np.testing.assert_allclose(f(a, b, rows), want, rtol=1e-5)


@pytest.mark.slow_cases("stock")
def test_what_is_used_elsewhere_is_not_overwritten(mode):
    x = tt.fmatrix()
    a = np.arange(9, dtype="float32").reshape(3, 3)
    y = tt.exp(x * 0.1)
    f = theano.function([x], [tt.set_subtensor(y[0], 7), y.transfer("dev0")], mode=mode)
    assert not getattr(node_of(f, OpenCLIncSubtensor).op, "destroy_map", None)
    changed, same = f(a)
    np.testing.assert_allclose(np.asarray(same), np.exp(a * 0.1), rtol=1e-5)
    np.testing.assert_array_equal(changed[0], [7] * 3)


@pytest.mark.parametrize("engine", ENGINES)
def test_in_large_graphs_no_kernel_overwrites_one_array_twice(default, engine):
    """A kernel must not write two results over a matrix and its transpose, because these share memory."""
    x = tt.fmatrix()
    y = tt.cumsum(x, 0)
    for _ in range(3):
        product = y * y.T
        y = tt.cumsum(tt.dot(tt.cumsum(product, 0), tt.cumsum(tt.tanh(product), 1)), 0)
    mode = ENGINES[engine](theano.Mode("py", "fast_run").including("opencl"))
    # Validate ten changes together, as in graphs of more than 500 nodes.
    with theano.change_flags({"tensor.insert_inplace_optimizer_validate_nb": 10, "on_opt_error": "raise"}):
        f = theano.function([x], y, mode=mode)
    assert any(len(node.outputs) > 1 for node in f.maker.fgraph.apply_nodes)
    a = np.array([[0.5, 0.25], [0.125, 0.5]], "float32")
    want = a.cumsum(0)
    for _ in range(3):
        product = want * want.T
        want = (product.cumsum(0) @ np.tanh(product).cumsum(1)).cumsum(0)
    np.testing.assert_allclose(f(a), want, rtol=1e-5)


# Loops.


def loops_of(function):
    return [node for node in function.maker.fgraph.toposort() if isinstance(node.op, Scan)]


def overwritten(function):
    """Return, for each loop on the device, how many states are computed in the memory of their initial values."""
    return [len(node.op.destroy_map) if getattr(node.op, "destroy_map", None) else 0 for node in loops_of(function)]


def check_loop(mode, inputs, outputs, *values, **kwargs):
    """Compare a function with the host's in several calls; return how many states are computed in place."""
    host = theano.function(inputs, outputs, mode=theano.Mode("py", "fast_compile"), **kwargs)
    f = theano.function(inputs, outputs, mode=mode, **kwargs)
    for _ in range(3):
        before = [value.copy() for value in values]
        for got, want in zip(f(*values), host(*values), strict=True):
            np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-6)
        for value, copy in zip(values, before, strict=True):
            np.testing.assert_array_equal(np.asarray(value), copy)
    return overwritten(f)


@pytest.mark.thorough_cases("stock")
def test_states_of_loops_are_computed_where_they_begin(mode):
    x, w = tt.fmatrix(), tt.fmatrix()
    start = tt.zeros((3,), dtype="float32")

    def step(a, h, c, w):
        return [tt.tanh(a + tt.dot(h, w)), c * 2 + h]

    states, _ = theano.scan(step, sequences=x, outputs_info=[start, start + 1], non_sequences=w)
    rng = np.random.RandomState(4)
    values = [rng.uniform(-1, 1, shape).astype("float32") for shape in ((5, 3), (3, 3))]
    assert check_loop(mode, [x, w], states, *values) == [2]
    assert check_loop(mode, [x, w], tt.grad(states[1][-1].sum(), [x, w]), *values)[-1] > 0


def test_loops_that_begin_alike_have_arrays_of_their_own(mode):
    x = tt.fmatrix()
    start = tt.zeros((3,), dtype="float32")
    ups, _ = theano.scan(lambda a, h: a + h, sequences=x, outputs_info=start)
    downs, _ = theano.scan(lambda a, h, g: [h - a, g * a + h], sequences=x, outputs_info=[start, start])
    check_loop(mode, [x], [ups, *downs, ups[-1] + downs[0][-1]], np.arange(12, dtype="float32").reshape(4, 3))


def test_states_that_lie_in_arguments_are_copied(mode):
    """A loop must not overwrite initial values that are views of an argument or of a shared array."""
    x = tt.fmatrix()
    shared = theano.shared(np.ones((1, 3), "float32"), target="dev0")
    for first in (x, shared):
        step_twice, _ = theano.scan(lambda h: h * 2, outputs_info=first, n_steps=2)
        once, _ = theano.scan(lambda h: h * 2, outputs_info=first, n_steps=1)
        values = [np.ones((1, 3), "float32")]
        check_loop(mode, [x], [step_twice[-1], once, first * 1], *values, on_unused_input="ignore")
        np.testing.assert_array_equal(np.asarray(shared.get_value()), np.ones((1, 3)))


def test_a_loop_whose_first_values_are_wanted_later(mode):
    x = tt.fmatrix()
    first = tt.exp(x[0]).dimshuffle("x", 0)
    taps = tt.concatenate([first, first * 2])
    states, _ = theano.scan(lambda a, h, g: a + h * g, sequences=x, outputs_info={"initial": taps, "taps": [-2, -1]})
    check_loop(
        mode, [x], [states, taps + 1, states[-1] + taps[0]], np.linspace(-1, 1, 12).astype("float32").reshape(4, 3)
    )

"""Scan, IfElse and their inner graphs run on the device."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.ifelse import IfElse, ifelse
from theano.scan_module.scan_op import Scan

import optdb
from optdb.opencl import OpenCLArrayType
from optdb.opencl.ops.elemwise import OpenCLElemwise

HOST = theano.Mode("py", "fast_compile")
LIFTED = theano.Mode("py", "fast_run").including("opencl")
RNG = np.random.RandomState(5)


def floats(*shape):
    return RNG.uniform(-1, 1, shape).astype("float32")


pytestmark = pytest.mark.usefixtures("default", "engine_where_quick")


def both(inputs, outputs, *arguments):
    """Compute on the host and on the device; return the lifted graph's ops."""
    expected = theano.function(inputs, outputs, mode=HOST, on_unused_input="ignore")(*arguments)
    f = theano.function(inputs, outputs, mode=LIFTED, on_unused_input="ignore")
    for _ in range(2):  # the second call uses the storage that the first call left
        for one, other in zip(f(*arguments), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    return list(f.maker.fgraph.toposort())


def on_device(nodes):
    scans = [node for node in nodes if isinstance(node.op, Scan)]
    assert scans
    return all(any(isinstance(var.type, OpenCLArrayType) for var in node.outputs) for node in scans)


x, w, h0 = tt.fmatrix("x"), tt.fmatrix("w"), tt.fvector("h0")


@pytest.mark.slow
def test_a_recurrent_net():
    h, _ = theano.scan(lambda a, h, w: tt.tanh(a + tt.dot(h, w)), sequences=x, outputs_info=h0, non_sequences=w)
    assert on_device(both([x, w, h0], [h, h[-1] * 2], floats(5, 3), floats(3, 3), floats(3)))


@pytest.mark.slow
def test_its_gradient():
    h, _ = theano.scan(lambda a, h, w: tt.tanh(a + tt.dot(h, w)), sequences=x, outputs_info=h0, non_sequences=w)
    grads = tt.grad((h**2).sum(), [x, w, h0])
    assert on_device(both([x, w, h0], grads, floats(4, 3), floats(3, 3), floats(3)))


@pytest.mark.slow
def test_elementwise_work_in_a_loop_is_fused():
    h, _ = theano.scan(lambda h: tt.tanh(h * 2 + 1) * tt.nnet.sigmoid(h), outputs_info=x, n_steps=3)
    # The loop's inner function is compiled in Theano's own mode, whatever the mode of the function.
    (scan,) = [node for node in both([x], [h], floats(4, 3)) if isinstance(node.op, Scan)]
    inner = [node for node in scan.op.fn.maker.fgraph.toposort() if isinstance(node.op, OpenCLElemwise)]
    assert len(inner) == 1


@pytest.mark.slow
def test_products_of_matrices_in_a_loop_are_left_to_the_device():
    h, _ = theano.scan(lambda h, w: tt.tanh(tt.dot(h, w)), outputs_info=x, non_sequences=w, n_steps=3)
    # If a rewriter for host products were applied to a device product, it would fail. Theano usually only logs such
    # failures, so let them raise.
    with theano.change_flags(on_opt_error="raise"):
        assert on_device(both([x, w], [h, tt.grad(h.sum(), w)], floats(4, 3), floats(3, 3)))


@pytest.mark.slow
def test_several_taps_and_outputs():
    (a, b), _ = theano.scan(
        lambda s, back2, back1: (back2 + back1 * s, tt.exp(s).sum()),
        sequences=x,
        outputs_info=[{"initial": w, "taps": [-2, -1]}, None],
    )
    assert on_device(both([x, w], [a, b], floats(5, 3), floats(2, 3)))


@pytest.mark.slow
def test_scalars_round_the_loop():
    v = tt.fvector("v")
    total, _ = theano.scan(lambda s, so_far: so_far + s * s, sequences=v, outputs_info=np.float32(0))
    both([v], [total], floats(6))


@pytest.mark.slow
def test_a_condition():
    powers, _ = theano.scan(
        lambda p: (p * 2, theano.scan_module.until(p.sum() > 20)), outputs_info=h0, n_steps=30, strict=True
    )
    both([h0], [powers], np.abs(floats(3)) + 1)


@pytest.mark.slow
def test_counting_stays_on_the_host():
    n = tt.lscalar("n")
    steps, _ = theano.scan(
        lambda i, before: i * 2 + before**2, sequences=tt.arange(n), outputs_info=tt.constant(1, dtype="int64")
    )
    nodes = both([n], [steps], 5)
    assert not on_device(nodes)


@pytest.mark.parametrize("condition", [0, 1])
def test_ifelse(condition):
    c = tt.bscalar("c")
    nodes = both([c, x], [ifelse(c, tt.exp(x), tt.tanh(x) + 1) * 2], condition, floats(3, 4))
    [chosen] = [node for node in nodes if isinstance(node.op, IfElse)]
    assert all(isinstance(var.type, OpenCLArrayType) for var in chosen.inputs[1:])


def test_a_loop_whose_mode_watches_each_step_stays_on_the_host():
    large = []

    def watch(i, node, thunk):
        large.extend(out[0] for out in thunk.outputs if isinstance(out[0], np.ndarray) and (out[0] > 10).any())

    x, k = tt.fvector("x"), tt.iscalar("k")
    mode = theano.compile.MonitorMode(post_func=watch)
    powers, _ = theano.scan(lambda p, x: p * x, outputs_info=tt.ones_like(x), non_sequences=x, n_steps=k, mode=mode)
    f = theano.function([x, k], powers[-1], mode=optdb.mode(device="opencl"))
    np.testing.assert_allclose(f(np.array([2, 3], "float32"), 3), [8, 27])
    assert large

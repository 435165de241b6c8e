"""Products in a loop that do not depend on a state are computed before the loop, if the result stays the same."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.scan_module.scan_op import Scan

from optdb.opencl.ops.blas import OpenCLDot22, OpenCLGemm
from optdb.opencl.rewriters import hoisting
from tests.effort import examples

HOST = theano.Mode("py", "merge")
LIFTED = theano.Mode("py", "fast_run").including("opencl")
WIDTH = 5

pytestmark = pytest.mark.usefixtures("default", "engine_where_quick")


#: The original `is_quicker`, which most tests replace by a function that does not depend on the device's speed.
IS_QUICKER = hoisting.is_quicker


@pytest.fixture(autouse=True)
def like_a_gpu(monkeypatch):
    monkeypatch.setattr(hoisting, "is_quicker", lambda kind: True)


x = tt.dtensor3("x")
w, u = tt.dmatrix("w"), tt.dmatrix("u")
b = tt.dvector("b")


def products(graph_or_nodes):
    return sum(isinstance(node.op, (OpenCLDot22, OpenCLGemm)) for node in graph_or_nodes)


def loops_of(function):
    return [node.op for node in function.maker.fgraph.toposort() if isinstance(node.op, Scan)]


def compared(outputs, steps=4, rows=3):
    """Compute on the host and on the device; return the number of products in the bodies of the device's loops."""
    rng = np.random.RandomState(steps)
    values = [rng.uniform(-1, 1, shape) for shape in ((steps, rows, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH,))]
    inputs = [x, w, u, b]
    expected = theano.function(inputs, outputs, mode=HOST, on_unused_input="ignore")(*values)
    f = theano.function(inputs, outputs, mode=LIFTED, on_unused_input="ignore")
    for _ in range(3):
        for one, other in zip(f(*values), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)
    return [products(theano.gof.graph.io_toposort(op.inputs, op.outputs)) for op in loops_of(f)]


def looped(step, **kwargs):
    start = tt.zeros((x.shape[1], WIDTH), dtype="float64")
    results, _ = theano.scan(step, sequences=x, outputs_info=start, non_sequences=[w, u, b], **kwargs)
    return results


def plain(part, state, w, u, b):
    return tt.tanh(part.dot(w) + state.dot(u) + b)


def test_the_input_of_a_net_is_multiplied_before_the_loop():
    assert compared([looped(plain)]) == [1]


def test_transposed_matrices():
    assert compared([looped(lambda part, state, w, u, b: tt.tanh(part.dot(w.T) + state.dot(u)))]) == [1]


def test_a_product_alone():
    assert compared([looped(lambda part, state, w, u, b: tt.tanh(part.dot(w)) * state + b)]) == [0]


def test_the_gradient_computes_no_product_again():
    loss = (looped(plain) ** 2).sum()
    # Only two products remain in loops: for the gradients of the state and of the input.
    assert compared(tt.grad(loss, [w, u, b, x])) == [1, 2]


def test_fewer_steps_than_the_sequence_has():
    assert compared([looped(plain, n_steps=2)]) == [1]


def test_backwards():
    assert compared([looped(plain, go_backwards=True)[-1]]) == [1]


def test_a_loop_that_may_end_early_keeps_its_products():
    def step(part, state, w, u, b):
        state = plain(part, state, w, u, b)
        return state, theano.scan_module.until(state.sum() > 2)

    assert compared([looped(step)]) == [2]


def test_a_processor_keeps_products_in_loops(monkeypatch, as_a_processor):
    monkeypatch.setattr(hoisting, "is_quicker", IS_QUICKER)
    assert compared([looped(plain)]) == [2]


_TERMS = [
    lambda part, state, w, u, b: part.dot(w),
    lambda part, state, w, u, b: part.dot(u.T),
    lambda part, state, w, u, b: state.dot(w) + b,
    lambda part, state, w, u, b: part * 2,
    lambda part, state, w, u, b: (part + 1).dot(u),
    lambda part, state, w, u, b: part.dot(w).dot(u),
    lambda part, state, w, u, b: 3 * part.dot(w) - state,
]


@pytest.mark.thorough
@settings(max_examples=examples(12))
@given(
    terms=st.lists(st.sampled_from(_TERMS), min_size=1, max_size=4),
    steps=st.integers(1, 4),
    rows=st.integers(1, 3),
    gradient=st.booleans(),
)
def test_random_loops(terms, steps, rows, gradient):
    def step(part, state, w, u, b):
        total = terms[0](part, state, w, u, b)
        for term in terms[1:]:
            total = total + term(part, state, w, u, b)
        return tt.tanh(total)

    states = looped(step)
    outputs = [states]
    if gradient:
        outputs += tt.grad((states**2).sum(), [w, u, x], disconnected_inputs="ignore")
    compared(outputs, steps, rows)

"""If a loop's gradient needs exactly the products that the loop computes, the loop saves them for the gradient."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.scan_module.scan_op import Scan

from optdb.codegen.recurrence import SavedProducts
from optdb.opencl.ops.blas import OpenCLSavedProducts
from optdb.opencl.rewriters import hoisting
from tests.effort import examples

HOST = theano.Mode("py", "merge")
# Fusion is excluded, because NumPy cannot compute fused scalars of more than 32 operands.
LIFTED = theano.Mode("py", "fast_run").including("opencl").excluding("fusion")
WIDTH = 4

pytestmark = pytest.mark.usefixtures("default", "engine_where_quick")

x = tt.dtensor3("x")
w, u = tt.dmatrix("w"), tt.dmatrix("u")


#: The original function, which most tests replace by a function that does not depend on the device's speed.
IS_QUICKER = hoisting.is_quicker


@pytest.fixture(autouse=True)
def like_a_gpu(monkeypatch):
    monkeypatch.setattr(hoisting, "is_quicker", lambda kind: True)


def compared(outputs, steps=4, rows=3, seed=1):
    """Compare device and host; return how many nodes use saved products, and how many products are computed again."""
    rng = np.random.RandomState(seed)
    values = [rng.uniform(-1, 1, shape) for shape in ((steps, rows, 2 * WIDTH), (WIDTH, 2 * WIDTH), (WIDTH, WIDTH))]
    expected = theano.function([x, w, u], outputs, mode=HOST, on_unused_input="ignore")(*values)
    f = theano.function([x, w, u], outputs, mode=LIFTED, on_unused_input="ignore")
    counted, compute = [], SavedProducts._computed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SavedProducts, "_computed", lambda *args: [counted.append(1), compute(*args)][1])
        for _ in range(4):
            for one, other in zip(f(*values), expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)
    nodes = f.maker.fgraph.toposort()
    return sum(isinstance(node.op, OpenCLSavedProducts) for node in nodes), len(counted)


def gated(part, hidden, cell, w, u):
    gates = part + hidden.dot(w)
    cell = tt.nnet.sigmoid(gates[:, :WIDTH]) * cell + tt.tanh(gates[:, WIDTH:])
    return [tt.tanh(cell), cell]


def looped(step=gated, sequence=x, **kwargs):
    start = tt.zeros((x.shape[1], WIDTH), dtype="float64")
    states, _ = theano.scan(step, sequences=sequence, outputs_info=[start, start], non_sequences=[w, u], **kwargs)
    return states[0]


def test_gates_are_saved():
    loss = (looped() ** 2).sum()
    assert compared(tt.grad(loss, [w, x])) == (1, 0)
    assert compared([loss, *tt.grad(loss, [w, x])], steps=1) == (1, 0)


@pytest.mark.thorough
def test_two_layers():
    upper = looped(sequence=tt.concatenate([looped()] * 2, axis=2))
    assert compared(tt.grad((upper**2).sum(), [w, x])) == (2, 0)


def test_products_to_which_nothing_is_added():
    def step(part, hidden, cell, w, u):
        return [tt.tanh(hidden.dot(u)) + part[:, :WIDTH], cell]

    assert compared(tt.grad((looped(step) ** 2).sum(), [u, x])) == (1, 0)


@pytest.mark.thorough_cases("options1", "options2")
@pytest.mark.parametrize("options", [{"n_steps": 3}, {"go_backwards": True}, {"truncate_gradient": 2}])
def test_loops_over_parts(options):
    loss = (looped(**options) ** 2).sum()
    saved, _ = compared(tt.grad(loss, [w, x]))
    assert saved == 1


def test_the_last_state_alone():
    """Although only the last state is used, the loop stores all states for the gradient."""
    assert compared(tt.grad((looped()[-1] ** 2).sum(), [w, x])) == (1, 0)


def test_a_product_with_another_matrix_is_computed():
    states = looped()
    again, _ = theano.scan(lambda h, u: tt.tanh(h.dot(u)), sequences=states, non_sequences=u)
    assert compared([again]) == (0, 0)


def test_states_of_other_steps_are_multiplied():
    """The second loop multiplies the same states by the same matrix, but it adds the terms of other steps."""
    states = looped()
    again, _ = theano.scan(
        lambda h, part, w: tt.tanh(part + h.dot(w)), sequences=[states[:-1], x[::-1][:-1]], non_sequences=w
    )
    saved, computed = compared([again])
    assert saved == 0 or computed


def test_a_loop_that_may_end_early_saves_nothing():
    def step(part, hidden, cell, w, u):
        hidden, cell = gated(part, hidden, cell, w, u)
        return [hidden, cell], theano.scan_module.until(cell.sum() > 1e9)

    again, _ = theano.scan(lambda h, w: tt.tanh(h.dot(w)), sequences=looped(step), non_sequences=w)
    assert compared([again]) == (0, 0)


def test_a_processor_saves_nothing(monkeypatch, as_a_processor):
    monkeypatch.setattr(hoisting, "is_quicker", IS_QUICKER)
    assert compared(tt.grad((looped() ** 2).sum(), [w, x])) == (0, 0)


def test_calls_of_other_lengths(monkeypatch):
    loss = (looped() ** 2).sum()
    outputs = tt.grad(loss, [w, x])
    host, lifted = (theano.function([x, w, u], outputs, mode=mode, on_unused_input="ignore") for mode in (HOST, LIFTED))
    rng = np.random.RandomState(3)
    for steps in (3, 5, 5, 1, 3, 3, 4):
        values = [rng.uniform(-1, 1, shape) for shape in ((steps, 2, 2 * WIDTH), (WIDTH, 2 * WIDTH), (WIDTH, WIDTH))]
        for got, want in zip(lifted(*values), host(*values), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)
    assert any(isinstance(node.op, Scan) for node in lifted.maker.fgraph.toposort())


_TERMS = [
    lambda part, h, c, w, u: h.dot(w),
    lambda part, h, c, w, u: c.dot(w),
    lambda part, h, c, w, u: tt.concatenate([h.dot(u), c], axis=1),
    lambda part, h, c, w, u: part,
    lambda part, h, c, w, u: part * 2,
    lambda part, h, c, w, u: (part + 1) * c.dot(w),
    lambda part, h, c, w, u: h.dot(u).dot(w),
]


@settings(max_examples=examples(8))
@given(
    terms=st.lists(st.sampled_from(_TERMS), min_size=1, max_size=4),
    steps=st.integers(1, 5),
    rows=st.integers(1, 3),
    options=st.sampled_from([{}, {}, {"n_steps": 1}, {"go_backwards": True}, {"truncate_gradient": 2}]),
    last=st.booleans(),
)
def test_random_loops(terms, steps, rows, options, last):
    def step(part, hidden, cell, w, u):
        gates = terms[0](part, hidden, cell, w, u)
        for term in terms[1:]:
            gates = gates + term(part, hidden, cell, w, u)
        cell = tt.nnet.sigmoid(gates[:, :WIDTH]) * cell + tt.tanh(gates[:, WIDTH:])
        return [tt.tanh(cell), cell]

    states = looped(step, **options)
    loss = ((states[-1] if last else states) ** 2).sum()
    compared([states, *tt.grad(loss, [w, u, x], disconnected_inputs="ignore")], steps, rows)

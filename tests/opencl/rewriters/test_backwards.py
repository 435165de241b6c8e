"""Loops that run backwards store results in the order of the sequences, and products accept either order."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen import parts
from optdb.opencl.ops.recurrence import OpenCLInOneOrder
from tests.effort import examples

HOST = theano.Mode("py", "merge")
# NumPy computes no fused scalars of more than 32 operands.
LIFTED = theano.Mode("py", "fast_run").including("opencl").excluding("fusion")
WIDTH, INWARD = 4, 3

pytestmark = pytest.mark.usefixtures("default", "engine_where_quick")

x = tt.dtensor3("x")
w, u = tt.dmatrix("w"), tt.dmatrix("u")


def step(part, hidden, cell, w):
    gates = part + hidden.dot(w)
    cell = tt.nnet.sigmoid(gates[:, :WIDTH]) * cell + tt.tanh(gates[:, WIDTH:])
    return [tt.tanh(cell), cell]


def states_of(sequence, **options):
    start = tt.zeros((sequence.shape[1], WIDTH), dtype="float64")
    (states, _), _ = theano.scan(step, sequences=sequence, outputs_info=[start, start], non_sequences=w, **options)
    return states


def compared(outputs, steps=5, rows=3, **options):
    """Compare host and device functions in some calls, given their numbers of steps.

    Return how many products accept either order, and how many reshapes of the last call are copies.
    """
    rng = np.random.RandomState(steps)
    matrices = [rng.uniform(-1, 1, shape) for shape in ((WIDTH, 2 * WIDTH), (INWARD, 2 * WIDTH))]
    host, lifted = (
        theano.function([x, w, u], outputs, mode=mode, on_unused_input="ignore", **options) for mode in (HOST, LIFTED)
    )
    copies, strides_for = [], parts.strides_for

    def counted(*args):
        strides = strides_for(*args)
        copies.extend([args] if strides is None else [])
        return strides

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "strides_for", counted)
        for count in (steps, steps, 1, steps):
            copies.clear()
            sequence = rng.uniform(-1, 1, (count, rows, INWARD))
            for one, other in zip(lifted(sequence, *matrices), host(sequence, *matrices), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)
    return sum(isinstance(node.op, OpenCLInOneOrder) for node in lifted.maker.fgraph.toposort()), len(copies)


def test_the_gradient_of_a_net_copies_no_sequence():
    """Products with inputs and products with states each multiply all steps at once."""
    loss = (states_of(x.dot(u)) ** 2).sum()
    assert compared(tt.grad(loss, [w, u])) == (1, 0)


@pytest.mark.thorough
def test_results_that_the_caller_gets_too():
    states = states_of(x.dot(u))
    results = [states, states[::-1], *tt.grad((states**2).sum(), [w, u, x])]
    assert compared(results) == (1, 0)


@pytest.mark.thorough
def test_two_layers():
    inner = states_of(x.dot(u))
    upper = states_of(tt.concatenate([inner, inner], axis=2))
    assert compared(tt.grad((upper**2).sum(), [w, u]))[0] == 2


@pytest.mark.thorough_cases("options0", "options1")
@pytest.mark.parametrize("options", [{"go_backwards": True}, {"truncate_gradient": 2}, {"n_steps": 1}])
def test_loops_over_parts(options):
    compared(tt.grad((states_of(x.dot(u), **options) ** 2).sum(), [w, u]))


def test_one_row():
    assert compared(tt.grad((states_of(x.dot(u)) ** 2).sum(), [w, u]), rows=1)[0] == 1


def test_results_that_are_needed_in_their_own_order():
    """If the caller gets a loop's result in the loop's order, it is stored in that order."""
    doubled, _ = theano.scan(lambda part, w: tt.tanh(part).dot(w[:INWARD]), sequences=x, non_sequences=w)
    assert compared([doubled, doubled[::-1]]) == (0, 0)


def test_results_that_are_turned_over_alone():
    doubled, _ = theano.scan(lambda part, w: tt.tanh(part).dot(w[:INWARD]), sequences=x, non_sequences=w)
    turned = doubled[::-1]
    assert compared([turned, turned.sum(axis=(0, 1)), doubled[::-2]]) == (0, 0)


def test_a_reshape_that_merges_other_axes():
    """Only for some shapes do the matrices have the lengths of a product over all steps."""
    doubled, _ = theano.scan(lambda part, w: tt.tanh(part).dot(w[:INWARD]), sequences=x, non_sequences=w)
    length = tt.cast(x.shape[0] * x.shape[1] * 2, "int64")
    right = doubled.reshape((length, WIDTH))
    left = tt.concatenate([x, x], axis=2)[::-1].dimshuffle(2, 0, 1).reshape((-1, length))
    assert compared([left.dot(right), doubled[::-1]], rows=2)[0] == 1


@pytest.mark.thorough
@settings(max_examples=examples(6))
@given(
    steps=st.integers(1, 5),
    rows=st.integers(1, 3),
    options=st.sampled_from([{}, {"n_steps": 1}, {"go_backwards": True}, {"truncate_gradient": 2}]),
    weights=st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=3, unique=True),
    last=st.booleans(),
)
def test_random_gradients(steps, rows, options, weights, last):
    states = states_of(x.dot(u), **options)
    loss = ((states[-1] if last else states) ** 2).sum()
    compared(tt.grad(loss, [(w, u, x)[number] for number in weights]), steps, rows)

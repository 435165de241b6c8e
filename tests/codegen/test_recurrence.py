"""Products of a loop's states are read if the loop has saved them, and computed otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optdb.codegen.operation import ArraySpec
from optdb.codegen.recurrence import SavedProducts
from optdb.codegen.views import subtensor
from tests.codegen.layouts import compute, context, device_array

ROWS, WIDTH, COLS = 3, 4, 5


def arrays(steps, states, dtype="float64"):
    """Return random saved products (computed products differ from these), a loop's states, a matrix, and addends."""
    rng = np.random.RandomState(steps)
    shapes = (steps, ROWS, COLS), (states, ROWS, WIDTH), (WIDTH, COLS), (steps, ROWS, COLS)
    return [device_array(rng.uniform(-1, 1, shape).astype(dtype)) for shape in shapes]


def computed(saved, states, wanted, matrix, *added):
    operation = SavedProducts(context(), ArraySpec.of(wanted))
    (got,) = operation.compute(saved, states, wanted, matrix, *added)
    return got


def products(wanted, matrix, *added):
    result = wanted.get() @ matrix.get()
    return result + added[1].get() if added else result


@given(
    st.integers(1, 6),
    st.integers(1, 3),
    st.slices(7),
    st.booleans(),
)
def test_what_is_saved_is_returned_and_the_rest_computed(steps, more, part, adds):
    saved, states, matrix, sequence = arrays(steps, steps + more)
    rows = range(*part.indices(steps + more))
    part = slice(rows.start, rows.stop if rows.stop >= 0 else None, rows.step)
    wanted = subtensor(states, [part])
    added = [sequence, subtensor(sequence, [part])] if adds else []
    if adds and added[1].shape[0] != wanted.shape[0]:
        return
    got = computed(saved, states, wanted, matrix, *added)
    if len(rows) and max(rows) < steps:
        np.testing.assert_array_equal(got.get(), saved.get()[list(rows)])
        assert got.base_data is saved.base_data
    else:
        np.testing.assert_allclose(got.get(), products(wanted, matrix, *added), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("which", ["states", "added", "both at other steps", "other states", "columns"])
def test_what_is_of_other_steps_or_copied_is_computed(which):
    saved, states, matrix, sequence = arrays(5, 6)
    backwards = slice(3, None, -1)
    wanted, plus = subtensor(states, [backwards]), subtensor(sequence, [backwards])
    if which == "states":
        wanted = device_array(wanted.get())
    elif which == "added":
        plus = device_array(plus.get())
    elif which == "both at other steps":
        plus = subtensor(sequence, [slice(4, 0, -1)])
    elif which == "other states":
        wanted = subtensor(device_array(np.ones((6, ROWS, WIDTH))), [backwards])
    else:
        wanted, matrix = subtensor(wanted, [slice(None), slice(None), slice(0, 2)]), subtensor(matrix, [slice(0, 2)])
    got = computed(saved, states, wanted, matrix, sequence, plus)
    np.testing.assert_allclose(got.get(), products(wanted, matrix, sequence, plus), rtol=1e-12, atol=1e-14)


def test_states_that_a_loop_has_overwritten_are_not_those_of_the_steps():
    """If a loop stores few of its states, its last states overwrite the first ones, so products are computed."""
    saved, states, matrix, _ = arrays(5, 5)
    wanted = subtensor(states, [slice(0, 4)])
    got = computed(saved, states, wanted, matrix)
    np.testing.assert_allclose(got.get(), products(wanted, matrix), rtol=1e-12, atol=1e-14)


def test_shapes_that_do_not_fit_are_refused():
    saved, states, matrix, _ = arrays(5, 6)
    with pytest.raises(ValueError):
        compute(SavedProducts(context(), ArraySpec.of(states)), saved, states, states, subtensor(matrix, [slice(0, 2)]))

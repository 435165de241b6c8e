"""Draws from distributions on the device, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.codegen.draws import ChooseOutcomes, CountDraws
from optdb.codegen.operation import ArraySpec
from tests.codegen.layouts import compute, context, device_array


def drawn(kind, weights, values, n, dtype, replace=False, steps=((1, 1), (1,))):
    arrays = [device_array(value, list(step)) for value, step in zip((weights, values), steps)]
    operation = kind(context(), *map(ArraySpec.of, arrays), dtype, replace)
    (result,) = compute(operation, *arrays, n)
    return result


def outcomes(weights, values, n, put_back):
    """Return the outcomes that Theano's C code draws: sums in double precision, the rest in the weights' dtype."""
    rows = len(weights)
    result = np.full((rows, n), -1)
    for row, left in enumerate(weights.copy()):
        for draw in range(n):
            sums = np.cumsum(left.astype("float64"))
            above = np.flatnonzero(sums > values[draw * rows + row])
            if not above.size:
                continue
            m = result[row, draw] = above[0]
            if put_back or draw + 1 == n:
                continue
            whole = left.dtype.type(sums[m] - left[m])
            left[m] = 0
            for weight in left[m:]:
                whole = left.dtype.type(whole + weight)
            left /= whole
    return result


@pytest.mark.parametrize("put_back", [False, True])
def test_outcomes(each_device_kind, put_back):
    rng = np.random.default_rng(0)
    weights, values = rng.dirichlet(np.ones(7), 6).astype("float32"), rng.uniform(0, 1, 18).astype("float32")
    layouts = ((1, -2), (-2,))
    got = drawn(ChooseOutcomes, weights, values, 3, "int32", put_back, layouts)
    assert got.dtype == "int32"
    np.testing.assert_array_equal(got, outcomes(weights, values, 3, put_back))
    counts = drawn(CountDraws, weights, values, 3, "float32", steps=layouts)
    named = outcomes(weights, values, 3, put_back=True)
    np.testing.assert_array_equal(counts, [np.bincount(row[row >= 0], minlength=7) for row in named])


def test_nothing_is_drawn_where_too_little_adds_up():
    weights, values = np.full((2, 2), 0.25, "float32"), np.array([0.9, 0.3], "float32")
    np.testing.assert_array_equal(drawn(ChooseOutcomes, weights, values, 1, "int64"), [[-1], [1]])
    np.testing.assert_array_equal(drawn(CountDraws, weights, values, 1, "float16"), [[0, 0], [0, 1]])


def test_numbers_that_do_not_fit_the_rows_are_refused():
    weights, values = np.full((2, 2), 0.5, "float32"), np.zeros(3, "float32")
    with pytest.raises(ValueError, match="3 numbers for 1 draws of 2 rows"):
        drawn(CountDraws, weights, values, 1, "float32")
    with pytest.raises(ValueError, match="bigger than the size"):
        drawn(ChooseOutcomes, weights, values, 3, "int64")

"""Random numbers equal Theano's and NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.codegen.operation import ArraySpec
from optdb.codegen.random_numbers import ChooseOutcomes, CountDraws, FirstOutcomes, UniformNumbers
from tests.codegen.layouts import compute, context, device_array


def states(n: int) -> np.ndarray:
    return (np.arange(n * 6).reshape(n, 6).astype("int32") + 1) * 617285 % 2147462578


def next_number(state):
    """Compute a stream's next number and next state with the recurrences in the paper."""
    x, y = state[:3], state[3:]
    m1, m2 = 2**31 - 1, 2**31 - 21069
    x = [(2**22 * x[1] + (2**7 + 1) * x[2]) % m1, *x[:2]]
    y = [(2**15 * y[0] + (2**15 + 1) * y[2]) % m2, *y[:2]]
    return x[0] - y[0] + (m1 if x[0] <= y[0] else 0), [*x, *y]


def numbers(state, size, dtype):
    """Return a sample, and the new state."""
    rows = [[int(number) for number in row] for row in state]
    whole = np.zeros(np.prod(size), "int64")
    for i in range(whole.size):
        whole[i], rows[i % len(rows)] = next_number(rows[i % len(rows)])
    if dtype == "float64":
        sample = whole * 4.656612873077392578125e-10
    elif dtype == "float32":
        sample = whole.astype("float32") * np.float32(4.6566126e-10)
    else:
        sample = ((whole & 0x7FFF) + 1).astype("float32") * np.float32(511 * 2.0**-24)
    return sample.astype(dtype).reshape(size), np.array(rows, "int32")


@pytest.mark.parametrize(
    "size, streams", [((7, 5), 5), ((100,), 17), ((3,), 20), ((5, 33), 40), ((64,), 16), ((0,), 2)]
)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_numbers_and_states(each_device_kind, dtype, size, streams):
    state = states(streams)
    operation = UniformNumbers(context(), dtype, len(size))
    new, sample = compute(operation, device_array(state, [1, -2]), np.array(size), outputs=2)
    want, want_state = numbers(state, size, dtype)
    np.testing.assert_array_equal(sample, want)
    np.testing.assert_array_equal(new, want_state)
    assert sample.dtype == dtype


@pytest.mark.parametrize("inplace", [False, True])
def test_the_state_is_overwritten_only_where_it_may_be(inplace):
    state = states(4)
    array = device_array(state)
    new, _ = compute(UniformNumbers(context(), "float32", 1, inplace), array, np.array([9]), outputs=2)
    np.testing.assert_array_equal(array.get(), new if inplace else state)
    assert (new != state).all()


@pytest.mark.parametrize("size, reason", [((2**20, 2**12), "more than"), ((-1, 3), "negative"), ((3,), "length 2")])
def test_sizes_that_cannot_be_are_refused(size, reason):
    with pytest.raises(ValueError, match=reason):
        compute(UniformNumbers(context(), "float32", 2), device_array(states(2)), np.array(size), outputs=2)


def test_states_and_dtypes_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="rstate must have 6 columns"):
        compute(UniformNumbers(context(), "float32", 1), device_array(states(2)[:, :5]), np.array([3]), outputs=2)
    with pytest.raises(TypeError, match="random numbers can be float16, float32, float64, not int32"):
        UniformNumbers(context(), "int32", 1)


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


@pytest.mark.parametrize("rows", [1, 4001])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_first_outcomes_are_those_of_searchsorted(each_device_kind, dtype, rows):
    rng = np.random.default_rng(rows)
    p, u = (rng.dirichlet(np.ones(6), rows) * 0.9).astype(dtype), rng.uniform(size=4001)
    # If the random number equals a partial sum of the weights, the outcome is the last one in this sum.
    u[:5] = p[:5].cumsum(axis=1).flat[:5]
    arrays = [device_array(value, steps) for value, steps in ((p, [2, -1]), (u, [-1]))]
    (found,) = compute(FirstOutcomes(context(), *map(ArraySpec.of, arrays), "int64"), *arrays)
    expected = [np.searchsorted(sums, number) for sums, number in zip(np.broadcast_to(p, (4001, 6)).cumsum(1), u)]
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == "int64"
    assert {0, 6} <= {*found}

"""Uniform random numbers on the device, compared with the generator's definition."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.codegen.mrg31k3p import UniformNumbers
from tests.codegen.layouts import compute, context, device_array


def states(n: int) -> np.ndarray:
    return (np.arange(n * 6).reshape(n, 6).astype("int32") + 1) * 617285 % 2147462578


def next_number(state):
    """Return the next number of a stream, and its state, by the recurrences of the paper."""
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
    with pytest.raises(TypeError, match="random numbers are of float16, float32, float64, not int32"):
        UniformNumbers(context(), "int32", 1)

"""Arrays of zeros around another array, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optdb.codegen.operation import ArraySpec
from optdb.codegen.padding import Pad
from tests.codegen.layouts import STEPS, compute, context, device_array, laid_out


def pad(array):
    return Pad(context(), ArraySpec.of(array))


@st.composite
def entries(draw, length):
    bound = st.none() | st.integers(-length - 1, length + 1)
    return slice(draw(bound), draw(bound), draw(st.none() | st.sampled_from([1, 1, 2, -1, -2])))


@given(st.data(), st.sampled_from(["float32", "int8", "complex128"]))
def test_parts_are_those_of_numpy(data, dtype):
    shape = tuple(data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)))
    index = [data.draw(entries(length)) for length in shape[: data.draw(st.integers(0, len(shape)))]]
    want = np.zeros(shape, dtype)
    part = want[tuple(index)]
    given_shape = [length if data.draw(st.booleans()) else 1 for length in part.shape]
    value, _ = data.draw(laid_out("float32", tuple(given_shape)))
    value = np.nan_to_num(value, posinf=3, neginf=-3).astype(dtype)
    want[tuple(index)] = value
    array = device_array(value, [data.draw(STEPS) for _ in value.shape])
    (got,) = compute(pad(array), array, list(shape), index)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("index", [[], [slice(None)], [slice(0, 4), slice(None, 9)], [slice(-4, None, 1)]])
def test_the_whole_is_the_array_itself(index):
    array = device_array(np.arange(12.0).reshape(4, 3), [-1, 2])
    (got,) = pad(array).compute(array, [4, 3], index)
    assert got is array


@pytest.mark.parametrize("index", [[slice(None, None, -1)], [slice(1, None)], [slice(None), slice(0, 2)]])
def test_other_parts_are_copies(index):
    want = np.zeros((4, 3))
    want[tuple(index)] = 7
    value = np.full(want[tuple(index)].shape, 7.0)
    array = device_array(value)
    (got,) = pad(array).compute(array, [4, 3], index)
    assert got is not array
    np.testing.assert_array_equal(got.get(), want)


def test_what_does_not_fit_is_refused():
    array = device_array(np.ones((2, 3)))
    with pytest.raises(ValueError):
        compute(pad(array), array, [4, 3], [slice(0, 3)])

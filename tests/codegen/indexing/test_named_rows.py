"""Taking, setting or incrementing rows with an index vector agrees with NumPy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.indexing.named_elements import ChangeRows, TakeRows
from optdb.codegen.operation import ArraySpec
from tests.codegen.layouts import compute, context, device_array, laid_out, shapes
from tests.effort import examples


def rows_of(array, rows):
    (result,) = compute(TakeRows(context(), ArraySpec.of(array)), array, rows)
    return result


def test_rows_are_named_from_both_ends_and_again(each_device_kind):
    value, rows = np.arange(12, dtype="float32").reshape(4, 3), np.array([3, -4, 3], "int32")
    array, y = device_array(value, [-1, 2]), device_array(np.arange(9, dtype="float32").reshape(3, 3))
    np.testing.assert_array_equal(rows_of(array, rows), value[rows])
    for setting in (True, False):
        want = value.copy()
        if setting:
            want[rows] = y.get()
        else:
            np.add.at(want, rows, y.get())
        (got,) = compute(ChangeRows(context(), ArraySpec.of(array), setting), array, y, rows)
        np.testing.assert_array_equal(got, want)


def test_rows_that_there_are_not_are_refused():
    array, y = device_array(np.ones((3, 2), "float32")), device_array(np.ones(2, "float32"))
    with pytest.raises(IndexError, match="TakeRows: index 3 is out of bounds for axis 0 with size 3"):
        rows_of(array, np.array([0, 3]))
    with pytest.raises(IndexError, match="ChangeRows: index -4 is out of bounds for axis 0 with size 3"):
        compute(ChangeRows(context(), ArraySpec.of(array)), array, y, np.array([-4]))


def test_rows_without_elements_have_the_numbers_that_numpy_accepts():
    """If rows have no elements, NumPy 1 only warns about a wrong index, and NumPy 2 raises an error."""
    value, rows = np.zeros((2, 0), "float32"), np.array([0, 5])
    array, y = device_array(value), device_array(np.zeros((1, 1), "float32"))
    operation = ChangeRows(context(), ArraySpec.of(array))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            value[rows] += 1
        except IndexError:
            with pytest.raises(IndexError):
                compute(operation, array, y, rows)
            return
        assert compute(operation, array, y, rows)[0].shape == value.shape


@pytest.mark.slow
@given(st.data(), st.sampled_from(["float32", "complex64", "int8", "float16"]))
@settings(max_examples=examples(30))
def test_rows_are_taken_as_in_numpy(data, dtype):
    shape = data.draw(shapes(min_dims=1))
    value = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    array = device_array(value, [data.draw(st.sampled_from([1, -2])) for _ in shape])
    named = st.integers(-shape[0], shape[0] - 1) if shape[0] else st.nothing()
    rows = np.array(data.draw(st.lists(named, max_size=5)) if shape[0] else [], "int32")
    np.testing.assert_array_equal(rows_of(array, rows), value[rows])


@pytest.mark.slow
@given(st.data(), st.booleans(), st.booleans())
@settings(max_examples=examples(40))
def test_rows_are_set_and_incremented_as_in_numpy(data, setting, inplace):
    shape = data.draw(shapes(min_dims=1))
    shape = (shape[0] + 1, *shape[1:])
    value, array = data.draw(laid_out("int32", shape))
    rows = np.array(data.draw(st.lists(st.integers(-shape[0], shape[0] - 1), max_size=6)), "int64")
    full = (len(rows), *shape[1:])
    small = tuple(1 if data.draw(st.booleans()) else length for length in full)[data.draw(st.integers(0, len(full))) :]
    y, y_array = data.draw(laid_out("int32", small))
    operation = ChangeRows(context(), ArraySpec.of(array), setting, inplace)
    want = value.copy()
    if setting:
        want[rows] = y
    else:
        np.add.at(want, rows, y)
    before = array.get()
    (got,) = compute(operation, array, y_array, rows)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(array.get(), want if inplace else before)

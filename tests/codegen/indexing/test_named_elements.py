"""Taking, setting or incrementing elements with index arrays and masks agrees with NumPy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from optdb.codegen.indexing.named_elements import ChangeElements, TakeElements
from optdb.codegen.operation import ArraySpec
from tests.codegen.indexing.kinds import kinds_of
from tests.codegen.layouts import compute, context, device_array

ROWS, COLUMNS = np.array([2, 0, -1, 2]), np.array([[1], [-2]], "int8")
FULL, BACK = slice(None), slice(None, None, -1)
EMPTY = np.zeros(0, "int64")
RNG = np.random.default_rng(0)
MASK = np.array([[True, False, True, True], [False] * 4, [True, True, False, False]])

#: Indexes of an array of shape (3, 4, 2).
INDEXES = {
    "alone": (ROWS,),
    "behind a slice": (FULL, ROWS),
    "last": (FULL, BACK, np.array([1, 0, 1])),
    "matrix": (COLUMNS,),
    "two that broadcast": (ROWS, COLUMNS),
    "two apart": (ROWS, FULL, np.array([0, 1, -1, 0])),
    "two apart by a new axis": (ROWS, None, np.array([0, 1, -1, 3])),
    "number apart": (np.array(1), FULL, np.array([[0, 1], [1, 0]])),
    "numbers alone": (np.array(-1), np.array(2)),
    "new axes": (None, slice(0, 2), None, ROWS[:2]),
    "all three": (ROWS, np.array([0, 3, 3, 0]), np.array([1, 1, 1, 1], "uint8")),
    "empty": (EMPTY, FULL, EMPTY),
    "empty slice": (slice(2, 2), ROWS),
    "mask of all": (RNG.integers(0, 2, (3, 4, 2)).astype(bool),),
    "mask of two": (MASK,),
    "mask and number": (np.array([True, False, True]), np.array([3, 0])),
    "mask behind": (slice(None, None, 2), np.array([True, False, False, True])),
    "mask of nothing": (np.zeros(3, bool), FULL),
    "mask without axes": (np.array(True), ROWS),
}
SHAPE = (3, 4, 2)


def taken(array, index):
    (result,) = compute(TakeElements(context(), ArraySpec.of(array), kinds_of(index)), array, *index)
    return result


def change(array, y, index, setting, inplace=False):
    """Set or increment elements of a device array."""
    sum_dtype = None if setting else np.result_type(array.dtype, y.dtype).name
    specs = ArraySpec.of(array), ArraySpec.of(y)
    operation = ChangeElements(context(), *specs, kinds_of(index), sum_dtype, inplace)
    (result,) = compute(operation, array, y, *index)
    return result


@pytest.mark.parametrize("name", INDEXES)
def test_taken_as_in_numpy(name):
    index = INDEXES[name]
    x = RNG.uniform(-1, 1, SHAPE).astype("float32")
    for steps in (None, [-1, 2, 1], [1, -2, -1]):
        got = taken(device_array(x, steps), index)
        np.testing.assert_array_equal(got, x[index])
        assert got.shape == x[index].shape


def changed(x, index, y, setting):
    want = x.copy()
    if setting:
        want[index] = y
    else:
        np.add.at(want, index, y)
    return want


@pytest.mark.parametrize("setting", [False, True])
@pytest.mark.parametrize("name", INDEXES)
def test_changed_as_in_numpy(name, setting):
    index = INDEXES[name]
    x = RNG.integers(-9, 9, SHAPE).astype("float32")
    part = x[index].shape
    for shape, steps, inplace in [(part, -1, False), (tuple(1 for _ in part), 1, True), (part[-1:], 2, True)]:
        y = RNG.integers(-9, 9, shape).astype("float32")
        array = device_array(x, [1, -1, 2])
        got = change(array, device_array(y, [steps] * y.ndim), index, setting, inplace)
        want = changed(x, index, y, setting)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(array.get(), want if inplace else x)


DTYPES = [("float16", "float16"), ("float32", "float64"), ("int8", "int16"), ("bool", "bool"), ("float64", "int64")]
#: Complex numbers are set bitwise; the device does not add them.
CHANGES = [*[(*pair, setting) for pair in DTYPES for setting in (False, True)], ("complex64", "complex64", True)]


@pytest.mark.parametrize("x_dtype, y_dtype, setting", CHANGES)
def test_dtypes(x_dtype, y_dtype, setting):
    x = RNG.uniform(-4, 4, (5, 3)).astype(x_dtype)
    y = RNG.uniform(-4, 4, (4, 2)).astype(x_dtype if setting else y_dtype)
    index = (np.array([[4], [0], [1], [-1]]), np.array([0, 2]))
    got = change(device_array(x), device_array(y), index, setting)
    want = changed(x, index, y, setting)
    assert got.dtype == want.dtype
    loose = 4e-3 if x_dtype == "float16" else 0
    np.testing.assert_allclose(got, want, rtol=loose, atol=loose)


def test_what_is_named_again_is_added_in_order_and_set_to_the_last():
    """The first four increments have a sum that depends on the order of the additions."""
    x, y = np.zeros((2, 2), "float32"), np.array([1e8, 3, -1e8, 0.25, 7, 11], "float32")
    index = np.array([0, 0, 0, 0, 1, 1]), np.array([1, 1, 1, 1, 0, 0])
    for setting, want in [(False, [[0, np.float32(1e8) + np.float32(3) - np.float32(1e8) + 0.25], [18, 0]]),
                          (True, [[0, 0.25], [11, 0]])]:  # fmt: skip
        got = change(device_array(x), device_array(y), index, setting)
        np.testing.assert_array_equal(got, np.array(want, "float32"))
        np.testing.assert_array_equal(got, changed(x, index, y, setting))


def test_what_is_named_of_nothing_is_no_error_where_numpy_only_warns():
    x, index = np.ones((0, 3), "float32"), (FULL, np.array([5]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = x[index]
        except IndexError:
            with pytest.raises(IndexError):
                taken(device_array(x), index)
            return
        assert taken(device_array(x), index).shape == want.shape


def test_errors_leave_the_array_alone():
    x, y = np.ones(SHAPE, "float32"), np.ones((4, 2), "float32")
    index = (np.array([0, 3]), np.array([0, 0]))
    array = device_array(x)
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0 with size 3"):
        change(array, device_array(y), index, False, inplace=True)
    good = (np.array([0, 2]), np.array([0, 0]))
    with pytest.raises(ValueError, match=r"shape \(4, 2\) to a part of shape \(2, 2\)"):
        change(array, device_array(y), good, False, inplace=True)
    np.testing.assert_array_equal(array.get(), x)

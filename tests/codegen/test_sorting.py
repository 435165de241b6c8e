"""Sorted elements, their indices, and the largest elements on the device equal NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.operation import ArraySpec
from optdb.codegen.sorting import SortAlongAxis, TopK
from tests.codegen.layouts import compute, context, device_array, laid_out, shapes
from tests.effort import examples

#: NumPy 1.25 moved this class to `numpy.exceptions`.
AxisError = getattr(np, "exceptions", np).AxisError

LENGTHS = [1, 2, 33, 256, 257, 1000, 5000]


def numbers(dtype, shape, seed=0):
    """Return numbers; many are equal, and some are NaN."""
    rng = np.random.default_rng(seed)
    value = (rng.normal(size=shape) * 40).round().astype(dtype)
    if dtype.startswith("float"):
        value[rng.uniform(size=shape) < 0.05] = np.nan
        value[rng.uniform(size=shape) < 0.05] = -0.0
    return value


def sort(array, axis, indices=False):
    (result,) = compute(SortAlongAxis(context(), ArraySpec.of(array), indices), array, axis)
    return result


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64"])
@pytest.mark.parametrize("length", LENGTHS)
def test_rows_of_all_lengths(each_device_kind, dtype, length):
    value = numbers(dtype, (3, length))
    np.testing.assert_array_equal(sort(device_array(value), -1), np.sort(value, kind="stable"))
    indices = sort(device_array(value), -1, indices=True)
    assert indices.dtype == "int64"
    np.testing.assert_array_equal(indices, np.argsort(value, kind="stable"))


def test_what_is_no_number_stays_as_it_is():
    value = np.array([np.nan, 1, -np.nan, -0.0, 0.0, np.inf, -np.inf], "float32")
    want = np.sort(value, kind="stable")
    np.testing.assert_array_equal(sort(device_array(value), 0).view("uint32"), want.view("uint32"))


@pytest.mark.slow
@given(st.data(), st.sampled_from(["float32", "bool", "int16"]))
@settings(max_examples=examples(12), deadline=None)
def test_all_axes_and_layouts(data, dtype):
    shape = data.draw(shapes(min_dims=1))
    value, array = data.draw(laid_out(dtype, shape))
    axis = np.array(data.draw(st.integers(-len(shape), len(shape) - 1)))
    np.testing.assert_array_equal(sort(array, axis), np.sort(value, axis, kind="stable"))
    np.testing.assert_array_equal(sort(array, axis, indices=True), np.argsort(value, axis, kind="stable"))


def test_an_axis_that_there_is_not_is_refused():
    for axis, error in ((2, AxisError), (0.5, ValueError)):
        with pytest.raises(error):
            sort(device_array(np.zeros((2, 3), "float32")), axis)


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("k", [1, -1, 3, -3, 40, -200, 300, -300])
def test_the_largest_and_the_smallest(each_device_kind, dtype, k):
    value = numbers(dtype, (300, 2), seed=k % 7)
    array = device_array(value, [1, -2])
    operation = TopK(context(), ArraySpec.of(array), 0, k, index_dtype="int16")
    got, indices = compute(operation, array, k, outputs=2)
    assert indices.dtype == "int16" and indices.shape == got.shape == (abs(k), 2)
    np.testing.assert_array_equal(got, np.take_along_axis(value, indices.astype(int), 0))
    assert all(len(set(column)) == len(column) for column in indices.T)
    want = np.partition(value, abs(k) - 1 if k < 0 else -k, 0)[slice(-k, None) if k > 0 else slice(-k)]
    if k == -1:
        want = value.min(0, keepdims=True)
    np.testing.assert_array_equal(np.sort(got, 0), np.sort(want, 0))
    if abs(k) > 1:
        np.testing.assert_array_equal(got, np.sort(got, 0)[:: -1 if k > 0 else 1])
    else:
        best = (np.argmax if k > 0 else np.argmin)(value, 0)
        np.testing.assert_array_equal(indices[0], best)


@pytest.mark.parametrize("k", [0, 4, -4])
def test_more_than_there_are_is_refused(k):
    array = device_array(np.zeros((2, 3), "float32"))
    with pytest.raises(ValueError, match="topk: kth cannot be"):
        compute(TopK(context(), ArraySpec.of(array), -1, k), array, k)

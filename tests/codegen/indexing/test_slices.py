"""Parts that slices and integers select, set and incremented on the device, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from optdb.codegen.indexing.slices import ChangeSlice
from optdb.codegen.operation import ArraySpec
from tests.codegen.layouts import compute, context, device_array, gpu_context, laid_out, shapes
from tests.effort import examples

CONTEXTS = st.sampled_from([context, gpu_context])


def change(array, y, index, setting, inplace=False, context=context):
    """Set or increment a part of a device array."""
    (result,) = compute(ChangeSlice(context(), ArraySpec.of(array), setting, inplace), array, y, index)
    return result


@pytest.mark.slow
@given(st.data(), st.booleans(), st.booleans(), st.sampled_from(["float32", "int8", "float16", "bool"]), CONTEXTS)
@settings(max_examples=examples(40))
def test_parts_are_set_and_incremented_as_in_numpy(data, setting, inplace, dtype, context):
    shape = data.draw(shapes(min_dims=1))
    value, array = data.draw(laid_out(dtype, shape, context))
    bounds = data.draw(hnp.basic_indices(shape, allow_ellipsis=False, allow_newaxis=False))
    first = bounds[0] if isinstance(bounds, tuple) and bounds else bounds
    part = first if isinstance(first, slice) else slice(None)
    length = len(range(*part.indices(shape[0])))
    small = (1 if data.draw(st.booleans()) else length, *shape[1:])
    y, y_array = data.draw(laid_out(dtype, small[data.draw(st.integers(0, len(small) - 1)) :], context))
    want = value.copy()
    with np.errstate(all="ignore"):
        if setting:
            want[part] = y
        else:
            want[part] += y
    before = array.get()
    np.testing.assert_array_equal(change(array, y_array, [part], setting, inplace, context), want)
    np.testing.assert_array_equal(array.get(), want if inplace else before)


def test_numbers_name_parts_with_fewer_axes():
    a = np.arange(12, dtype="int16").reshape(3, 4)
    want = a.copy()
    want[-1, 1:] += 7
    array, y = device_array(a, [-1, 2]), device_array(np.array([7], "int16"))
    np.testing.assert_array_equal(change(array, y, [np.int64(-1), slice(1, None)], False), want)
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0 with size 3"):
        change(array, y, [3], False)


def test_a_part_is_set_to_what_overlaps_it():
    array = device_array(np.arange(10, dtype="float32"))
    got = change(array, array[:9], [slice(1, 10)], True, inplace=True)
    np.testing.assert_array_equal(got, [0, *range(9)])


def test_a_value_that_does_not_fit_is_refused():
    a = np.ones((3, 4), "float32")
    with pytest.raises(ValueError, match=r"ChangeSlice cannot broadcast a value of shape \(2, 4\) to a part of shape"):
        change(device_array(a), device_array(a[:2]), [slice(0, 3)], False)


@pytest.mark.parametrize("setting", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "int8"])
def test_a_gpu_moves_four_neighbours_at_once(dtype, setting):
    a, y = np.arange(6 * 24).reshape(6, 24).astype(dtype), np.arange(60).reshape(5, 12).astype(dtype)
    for start in (4, 6, 7):
        want = a.copy()
        want[1:, start : start + 12] = y if setting else want[1:, start : start + 12] + y
        arrays = [device_array(value, context=gpu_context) for value in (a, y)]
        part = [slice(1, None), slice(start, start + 12)]
        np.testing.assert_array_equal(change(*arrays, part, setting, context=gpu_context), want)

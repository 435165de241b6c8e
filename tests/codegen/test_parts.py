"""Joining, splitting, tiling and zero padding arrays, and changing slices, agree with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from optdb.codegen.operation import ArraySpec
from optdb.codegen.parts import ChangeSlice, JoinArrays, Pad, SplitArray, TileArray
from tests.codegen.layouts import STEPS, compute, context, device_array, gpu_context, laid_out, shapes
from tests.effort import examples


def join(axis, *arrays, context=context):
    (result,) = compute(JoinArrays(context(), ArraySpec.of(arrays[0])), np.array(axis), *arrays)
    return result


@pytest.mark.slow
@given(st.data(), st.sampled_from(["float32", "int8", "complex128"]), st.sampled_from([context, gpu_context]))
@settings(max_examples=examples(30), deadline=None)
def test_joins_are_those_of_numpy(data, dtype, context):
    shape = list(data.draw(shapes(min_dims=1)))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    pairs = []
    for _ in range(data.draw(st.integers(1, 3))):
        shape[axis] = data.draw(st.integers(0, 3))
        value = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        steps = [data.draw(st.sampled_from([1, 1, 2, -1])) for _ in shape]
        pairs.append((value, device_array(value, steps, context)))
    want = np.concatenate([value for value, _ in pairs], axis)
    got = join(axis, *[array for _, array in pairs], context=context)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_joins_along_each_axis():
    value = np.arange(12, dtype="float32").reshape(3, 4)
    array = device_array(value, [-1, 2])
    for axis in (0, 1, -1, -2):
        np.testing.assert_array_equal(join(axis, array, array), np.concatenate([value, value], axis))


def test_what_does_not_join_is_refused():
    a, b = device_array(np.ones((2, 3), "float32")), device_array(np.ones((2, 4), "float32"))
    with pytest.raises(ValueError, match=r"JoinArrays joins along axis 0 .* shapes are \(2, 3\), \(2, 4\)"):
        join(0, a, b)
    with pytest.raises(IndexError, match="no axis 2"):
        join(2, a, b)


def test_splits():
    a = np.arange(12, dtype="int16").reshape(3, 4)
    operation = SplitArray(context(), ArraySpec.of(a), 3)
    pieces = compute(operation, device_array(a, [-1, 2]), np.array(1), np.array([1, 0, 3]), outputs=3)
    for got, want in zip(pieces, np.split(a, [1, 1], axis=1), strict=True):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match="SplitArray cannot cut 4 elements along axis 1 into 3 pieces"):
        compute(operation, device_array(a), np.array(1), np.array([1, 1, 1]), outputs=3)


@given(st.data(), st.lists(st.integers(0, 3), min_size=1, max_size=3))
@settings(max_examples=examples(20), deadline=None)
def test_tiles_are_those_of_numpy(data, repeats):
    value, array = data.draw(laid_out("int16", data.draw(shapes())))
    operation = TileArray(context(), ArraySpec.of(array), max(value.ndim, len(repeats)))
    np.testing.assert_array_equal(compute(operation, array, np.array(repeats))[0], np.tile(value, repeats))


@pytest.mark.parametrize("repeats", [[1, 2, 3], [2, -1]])
def test_repeats_that_cannot_be_are_refused(repeats):
    array = device_array(np.ones((2, 3), "float32"))
    with pytest.raises(ValueError, match="TileArray cannot repeat an array of 2 dimensions"):
        compute(TileArray(context(), ArraySpec.of(array), 2), array, np.array(repeats))


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

"""Arrays joined, split and repeated on the device, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.joining import JoinArrays, SplitArray, TileArray
from optdb.codegen.operation import ArraySpec
from tests.codegen.layouts import compute, context, device_array, gpu_context, laid_out, shapes
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

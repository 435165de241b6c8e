"""Finding the largest elements, and the positions of values in a sorted vector, agrees with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.codegen.operation import ArraySpec
from optdb.codegen.searching import FindLargest, SearchSorted
from tests.codegen.layouts import compute, context, device_array, laid_out, shapes
from tests.effort import examples

#: The dtypes of the vector and of the values: they are equal, or promoted to one of the two, or to a third dtype.
DTYPES = [
    *[("float32", "float32"), ("float16", "float16"), ("bool", "bool"), ("int64", "int64"), ("uint64", "uint64")],
    *[("float64", "float32"), ("float16", "float32"), ("bool", "int16"), ("float32", "int8"), ("int32", "float64")],
    *[("int64", "uint64"), ("uint8", "int8"), ("float32", "int32"), ("int16", "float16"), ("float32", "int64")],
]


def numbers(dtype, shape, seed=0):
    """Return numbers; many are equal, and some are NaN or infinite."""
    rng = np.random.default_rng(seed)
    value = np.asarray((np.abs(rng.normal(size=shape)) * 20).round().astype(dtype))
    if dtype.startswith("float"):
        value = np.where(rng.uniform(size=shape) < 0.5, -value, value)
        for share, special in ((0.1, np.nan), (0.05, np.inf), (0.05, -np.inf), (0.05, -0.0)):
            value = np.where(rng.uniform(size=shape) < share, value.dtype.type(special), value)
    return value


def search(side, ordered, wanted):
    """Search a sorted device array for the values in another one."""
    (result,) = compute(SearchSorted(context(), ArraySpec.of(ordered), ArraySpec.of(wanted), side), ordered, wanted)
    return result


def indices_of(side, x, v):
    return search(side, device_array(x), device_array(v))


@pytest.mark.parametrize("ordered, wanted", DTYPES)
def test_all_dtypes(each_device_kind, ordered, wanted):
    x, v = np.sort(numbers(ordered, 77)), numbers(wanted, (5, 9), seed=1)
    for side in ("left", "right"):
        got = indices_of(side, x, v)
        assert got.dtype == "int64"
        np.testing.assert_array_equal(got, np.searchsorted(x, v, side=side))


def test_large_whole_numbers_are_compared_as_numpy_compares_them():
    x = np.array([2**53, 2**53 + 1, 2**53 + 2], "int64")
    for v in (x, x.astype("uint64"), x.astype("float64")):
        np.testing.assert_array_equal(indices_of("left", x, v), np.searchsorted(x, v))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0), (2, 3, 4)])
@pytest.mark.parametrize("length", [0, 1, 2, 1000])
def test_sizes(each_device_kind, length, shape):
    x, v = np.sort(numbers("float32", length)), numbers("float32", shape, seed=1)
    np.testing.assert_array_equal(indices_of("right", x, v), np.searchsorted(x, v, side="right"))


@given(st.data())
@settings(max_examples=examples(12), deadline=None)
def test_all_layouts(data):
    length = data.draw(st.integers(1, 40))
    x, ordered = data.draw(laid_out("float32", (length,)))
    v, wanted = data.draw(laid_out("float32", data.draw(shapes())))
    if not np.array_equal(x, np.sort(x)):
        x = np.sort(x)
        ordered = device_array(x[::-1].copy())[::-1]
    np.testing.assert_array_equal(search("left", ordered, wanted), np.searchsorted(x, v))


@pytest.mark.slow
@given(st.data(), st.sampled_from(["float32", "int8", "float16", "uint64"]))
@settings(max_examples=examples(40))
def test_the_first_of_the_largest(data, dtype):
    shape = tuple(max(length, 1) for length in data.draw(shapes(min_dims=1)))
    value, array = data.draw(laid_out(dtype, shape))
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    largest, indices = compute(FindLargest(context(), ArraySpec.of(array), axes), array, outputs=2)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    rows = value.transpose(kept + axes).reshape([shape[axis] for axis in kept] + [-1])
    np.testing.assert_array_equal(largest, value.max(tuple(axes)))
    np.testing.assert_array_equal(indices, rows.argmax(-1))
    assert indices.dtype == "int64"
    (alone,) = compute(FindLargest(context(), ArraySpec.of(array), axes, values=False), array)
    np.testing.assert_array_equal(alone, indices)


def test_nothing_has_no_largest_element():
    array = device_array(np.zeros((2, 0), "float32"))
    with pytest.raises(ValueError, match=r"FindLargest has no largest element .* \(2, 0\)"):
        compute(FindLargest(context(), ArraySpec.of(array), [1], values=False), array)
    (indices,) = compute(FindLargest(context(), ArraySpec.of(array), [0], values=False), array)
    assert indices.shape == (0,)

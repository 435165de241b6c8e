"""Cumulative sums and products on the device agree with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.codegen.cumulative import Cumulate
from optdb.codegen.operation import ArraySpec
from tests.codegen.layouts import compute, context, device_array

DTYPES = ["float32", "int8", "uint64", "bool"]


def numbers(dtype, shape):
    rng = np.random.default_rng(len(shape))
    return rng.integers(0, 2, shape).astype(bool) if dtype == "bool" else (rng.normal(size=shape) * 20).astype(dtype)


def cumulated(array, mode, axis):
    (result,) = compute(Cumulate(context(), ArraySpec.of(array), mode, axis), array)
    return result


@pytest.mark.pairwise
@pytest.mark.parametrize("mode", ["add", "mul"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_axes_and_layouts(each_device_kind, dtype, mode):
    numpys = np.cumsum if mode == "add" else np.cumprod
    for shape in [(3, 4, 5), (19, 1, 2), (1, 2, 0)]:
        value = numbers(dtype, shape)
        array = device_array(value, [2, 1, -1])
        for axis in (None, 0, 1, -1):
            got = cumulated(array, mode, axis)
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(got, numpys(value, axis, dtype=dtype))


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", ["float32", "int16", "float16"])
@pytest.mark.parametrize("shape, axis", [((5000,), 0), ((2, 1025), 1), ((700, 3), 0), ((513, 2), None), ((70001,), 0)])
def test_long_rows(each_device_kind, dtype, shape, axis):
    value = (np.random.default_rng(1).normal(size=shape) * 9).astype(dtype)
    got = cumulated(device_array(value), "add", axis)
    want = np.cumsum(value, axis, dtype=dtype)
    if dtype == "int16" or each_device_kind == "cpu":
        np.testing.assert_array_equal(got, want)
    else:  # the order of additions differs, and the exact sum is the reference
        exact = np.cumsum(value, axis, dtype="float64")
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(got, exact, rtol=eps, atol=20 * eps * np.abs(exact).max())


def test_vectors_numbers_and_no_numbers():
    for value in (np.float32(3), np.arange(4.0)[::-1], np.zeros(0)):
        value = np.asarray(value)
        got = cumulated(device_array(value), "add", None)
        np.testing.assert_array_equal(got, np.cumsum(value))
    value = np.array([np.nan, -0.0, np.inf])
    for part in (value, value[1:], value[1:2]):
        got = cumulated(device_array(part), "mul", 0)
        np.testing.assert_array_equal(got, np.cumprod(part))
        assert np.signbit(got[-1]) == np.signbit(np.cumprod(part)[-1])

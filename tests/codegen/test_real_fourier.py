"""Fourier transforms on the device agree with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.codegen.operation import ArraySpec
from optdb.codegen.real_fourier import InverseRealFourier, RealFourier
from tests.codegen.layouts import compute, context, device_array

#: Lengths: powers of two and of four, products of small primes, small and large primes, products with large primes.
LENGTHS = [1, 2, 3, 4, 5, 6, 8, 16, 30, 31, 37, 64, 74, 120, 343, 1009, 2048]
EPS = {"float16": 2**-10, "float32": 2**-23, "float64": 2**-52}


def agree(got, want, dtype):
    assert got.dtype == dtype and got.shape == want.shape
    tolerance = 8 * EPS[dtype]
    np.testing.assert_allclose(got, want.astype(dtype), rtol=tolerance, atol=tolerance * max(abs(want).max(), 1))


def pairs(value):
    return np.stack([value.real, value.imag], -1)


def transformed(kind, array, lengths):
    (result,) = compute(kind(context(), ArraySpec.of(array)), array, np.array(lengths))
    return result


@pytest.mark.parametrize("n", LENGTHS)
def test_all_lengths_there_and_back(each_device_kind, n):
    value = np.random.default_rng(n).normal(size=(3, n))
    got = transformed(RealFourier, device_array(value), [n])
    agree(got, pairs(np.fft.rfft(value)), "float64")
    coefficients = np.random.default_rng(n).normal(size=(3, n // 2 + 1, 2))
    back = transformed(InverseRealFourier, device_array(coefficients), [n])
    agree(back, np.fft.irfft(coefficients[..., 0] + 1j * coefficients[..., 1], n) * n, "float64")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_several_axes_and_layouts(each_device_kind, dtype):
    rng = np.random.default_rng(0)
    value = rng.normal(size=(2, 6, 5, 4)).astype(dtype)
    array = device_array(value, [1, -1, 2, -2])
    # The array's own lengths, truncated and padded axes, and transforms over fewer axes
    for s in [(6, 5, 4), (4, 7, 8), (5, 3), (9,)]:
        got = transformed(RealFourier, array, s)
        agree(got, pairs(np.fft.rfftn(value, s, range(-len(s), 0))), dtype)
    coefficients = rng.normal(size=(2, 4, 3, 3, 2)).astype(dtype)
    array = device_array(coefficients, [2, 1, -1, 1, -1])
    for s in [(4, 3, 4), (4, 3, 5), (2, 5, 9), (3, 2), (3,)]:
        got = transformed(InverseRealFourier, array, s)
        there = coefficients[..., 0] + 1j * coefficients[..., 1]
        agree(got, np.fft.irfftn(there, s, range(-len(s), 0)) * np.prod(s), dtype)


def test_nothing_and_zeros():
    empty = np.zeros((0, 4))
    assert transformed(RealFourier, device_array(empty), [4]).shape == (0, 3, 2)
    empty = np.zeros((2, 0))
    np.testing.assert_array_equal(transformed(RealFourier, device_array(empty), [4]), np.zeros((2, 3, 2)))


@pytest.mark.parametrize("lengths, reason", [([0], "FFT data points"), ([1, 2, 3], "1 to 2 axes")])
def test_lengths_that_cannot_be_are_refused(lengths, reason):
    value = np.ones((2, 3))
    with pytest.raises(ValueError, match=reason):
        transformed(RealFourier, device_array(value), lengths)
    with pytest.raises(IndexError, match="InverseRealFourier takes pairs"):
        transformed(InverseRealFourier, device_array(np.ones((2, 3, 1))), [3])

"""Fourier transforms on the device, against NumPy and the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor import fft
from theano.tensor.fft import IRFFTOp, RFFTOp

from optdb.opencl.ops.fft import OpenCLIRFFTOp, OpenCLRFFTOp
from tests.opencl.layouts import device_array, run, variable
from tests.opencl.lifted import both

#: Powers of two and of four, products of small primes, primes small and large, products with large ones.
LENGTHS = [1, 2, 3, 4, 5, 6, 8, 16, 30, 31, 37, 64, 74, 120, 343, 1009, 2048]
EPS = {"float16": 2**-10, "float32": 2**-23, "float64": 2**-52}


def agree(got, want, dtype):
    assert got.dtype == dtype and got.shape == want.shape
    tolerance = 8 * EPS[dtype]
    np.testing.assert_allclose(got, want.astype(dtype), rtol=tolerance, atol=tolerance * max(abs(want).max(), 1))


def pairs(value):
    return np.stack([value.real, value.imag], -1)


@pytest.mark.parametrize("n", LENGTHS)
def test_all_lengths_there_and_back(each_device_kind, n):
    value = np.random.default_rng(n).normal(size=(3, n))
    (got,) = run(OpenCLRFFTOp()(variable(value), [n]).owner, [device_array(value), np.array([n])])
    agree(got, pairs(np.fft.rfft(value)), "float64")
    coefficients = np.random.default_rng(n).normal(size=(3, n // 2 + 1, 2))
    node = OpenCLIRFFTOp()(variable(coefficients), [n]).owner
    (back,) = run(node, [device_array(coefficients), np.array([n])])
    agree(back, np.fft.irfft(coefficients[..., 0] + 1j * coefficients[..., 1], n) * n, "float64")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_several_axes_and_layouts(each_device_kind, dtype):
    rng = np.random.default_rng(0)
    value = rng.normal(size=(2, 6, 5, 4)).astype(dtype)
    array = device_array(value, [1, -1, 2, -2])
    # Of the shape, cut and filled, over fewer axes.
    for s in [(6, 5, 4), (4, 7, 8), (5, 3), (9,)]:
        (got,) = run(OpenCLRFFTOp()(variable(value), s).owner, [array, np.array(s)])
        agree(got, pairs(np.fft.rfftn(value, s)), dtype)
    coefficients = rng.normal(size=(2, 4, 3, 3, 2)).astype(dtype)
    array = device_array(coefficients, [2, 1, -1, 1, -1])
    for s in [(4, 3, 4), (4, 3, 5), (2, 5, 9), (3, 2), (3,)]:
        (got,) = run(OpenCLIRFFTOp()(variable(coefficients), s).owner, [array, np.array(s)])
        there = coefficients[..., 0] + 1j * coefficients[..., 1]
        agree(got, np.fft.irfftn(there, s) * np.prod(s), dtype)


def test_nothing_and_zeros():
    empty = np.zeros((0, 4))
    (got,) = run(OpenCLRFFTOp()(variable(empty), [4]).owner, [device_array(empty), np.array([4])])
    assert got.shape == (0, 3, 2)
    empty = np.zeros((2, 0))
    (got,) = run(OpenCLRFFTOp()(variable(empty), [4]).owner, [device_array(empty), np.array([4])])
    np.testing.assert_array_equal(got, np.zeros((2, 3, 2)))


@pytest.mark.parametrize("lengths, said", [([0], "FFT data points"), ([1, 2, 3], "1 to 2 axes")])
def test_lengths_that_cannot_be_are_refused(lengths, said):
    value = np.ones((2, 3))
    with pytest.raises(ValueError, match=said):
        run(OpenCLRFFTOp()(variable(value), lengths).owner, [device_array(value), np.array(lengths)])


@pytest.mark.parametrize("norm", [None, "ortho", "no_norm"])
def test_lifted_with_gradients(norm):
    x, y = tt.dtensor3(), tt.dtensor4()
    a, b = np.random.default_rng(0).normal(size=(2, 3, 6)), np.random.default_rng(1).normal(size=(2, 3, 4, 2))
    there, back = fft.rfft(x, norm), fft.irfft(y, norm)
    odd = fft.irfft(y, norm, is_odd=True)
    weights = tt.arange(back.size, dtype="float64").reshape(back.shape)
    outputs = [there, back, odd, theano.grad((there**3).sum(), x), theano.grad((back * weights).sum(), y)]
    got, want, ops = both([x, y], outputs, [a, b])
    for mine, theirs in zip(got, want):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-10)
    assert {OpenCLRFFTOp, OpenCLIRFFTOp} <= set(ops) and not {RFFTOp, IRFFTOp} & set(ops)


def test_gradient_on_the_device():
    value = np.random.default_rng(2).normal(size=(2, 5))
    x, z = variable(value), tt.dmatrix()
    mode = theano.Mode("py", None)
    ours = theano.grad((tt.as_tensor_variable(OpenCLRFFTOp()(x, [5])) ** 2).sum(), x)
    theirs = theano.grad((RFFTOp()(z, [5]) ** 2).sum(), z)
    got = theano.function([x], ours, mode=mode)(device_array(value))
    np.testing.assert_allclose(np.asarray(got), theano.function([z], theirs, mode=mode)(value), rtol=1e-12)

"""Lifted Fourier transforms agree with the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor import fft
from theano.tensor.fft import IRFFTOp, RFFTOp

from optdb.opencl.ops.axes import OpenCLIRFFTOp, OpenCLRFFTOp
from tests.opencl.layouts import device_array, variable
from tests.opencl.lifted import both


@pytest.mark.slow_cases("None")
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

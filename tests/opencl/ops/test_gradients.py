"""Gradients through device ops agree with those through the host's ops, and can be computed on the device."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.scalar import int64

from optdb.opencl.ops.blas import OpenCLDot
from optdb.opencl.ops.parts import OpenCLAdvancedSubtensor1, OpenCLIncSubtensor, OpenCLJoin
from optdb.opencl.ops.softmax import OpenCLLogSoftmax, OpenCLSoftmax
from optdb.opencl.ops.views import OpenCLDimShuffle, OpenCLReshape, OpenCLSubtensor
from tests.opencl.layouts import device_array, variable

ROWS = np.array([0, 2, 0])
SLICE = [slice(int64, None, None)]

CASES = {
    "dimshuffle": (lambda x: OpenCLDimShuffle((False, False), (1, "x", 0))(x), lambda x: x.dimshuffle(1, "x", 0)),
    "reshape": (lambda x: OpenCLReshape(1)(x, [-1]), lambda x: x.reshape([-1])),
    "subtensor": (lambda x: OpenCLSubtensor(SLICE)(x, np.int64(1)), lambda x: x[1:]),
    "set": (
        lambda x: OpenCLIncSubtensor(SLICE, set_instead_of_inc=True)(x, x[1:] * 2, np.int64(1)),
        lambda x: tt.set_subtensor(x[1:], x[1:] * 2),
    ),
    "take": (lambda x: OpenCLAdvancedSubtensor1()(x, ROWS), lambda x: x[ROWS]),
    "join": (lambda x: OpenCLJoin()(0, x, x), lambda x: tt.join(0, x, x)),
    "softmax": (lambda x: OpenCLSoftmax()(x), tt.nnet.softmax),
    "logsoftmax": (lambda x: OpenCLLogSoftmax()(x), tt.nnet.logsoftmax),
    "dot": (lambda x: OpenCLDot()(x, OpenCLDimShuffle((False, False), (1, 0))(x)), lambda x: tt.dot(x, x.T)),
}


@pytest.mark.slow_cases("dot")
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_host(name):
    on_device, on_host = CASES[name]
    value = np.random.default_rng(0).uniform(-1, 1, (4, 3)).astype("float32")
    weights = np.arange(48, dtype="float32")

    def gradient(x, y):
        flat = tt.as_tensor_variable(y).flatten()
        return theano.grad((flat * tt.constant(weights)[: flat.size]).sum(), x)

    x = variable(value)
    mode = theano.Mode("py", None)
    got = theano.function([x], gradient(x, on_device(x)), mode=mode)(device_array(value))
    z = tt.fmatrix()
    want = theano.function([z], gradient(z, on_host(z)), mode=mode)(value)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4, atol=1e-4)

"""Lifted pooling, its gradients and their derivatives agree with the host's C code.

The host's pooling in Python does not run with the installed NumPy; its C code does.
"""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.signal import pool as host

from optdb.opencl import as_opencl_variable
from optdb.opencl.ops.conv import (
    OpenCLAveragePoolGrad,
    OpenCLDownsampleFactorMaxGradGrad,
    OpenCLMaxPoolGrad,
    OpenCLPool,
)
from optdb.runtime.library import cl
from tests.codegen.pooled import CASES, MODES, numbers, sample
from tests.opencl.layouts import NAME, variable
from tests.opencl.lifted import both, host_function, lifted_function, ops_of
from tests.opencl_device import runtime_context

pytestmark = pytest.mark.optimized


@pytest.mark.slow
@pytest.mark.skipif(not theano.config.cxx, reason="the host's pooling needs a compiler")
def test_lifted_with_first_and_second_gradients():
    x = tt.ftensor4()
    a = np.random.default_rng(0).normal(size=(2, 3, 6, 7)).astype("float32")
    outputs = []
    for mode, size, stride in (("max", (3, 2), (2, 1)), ("average_exc_pad", (2, 2), (2, 2))):
        z = host.pool_2d(x, size, ignore_border=mode == "max", stride=stride, mode=mode)
        gradient = theano.grad((z**3).sum(), x)
        outputs += [z, gradient, theano.grad((gradient**2).sum(), x)]
    got, want, ops = both([x], outputs, [a], linker="c|py")
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
    assert {OpenCLPool, OpenCLMaxPoolGrad, OpenCLAveragePoolGrad, OpenCLDownsampleFactorMaxGradGrad} <= set(ops)


@pytest.mark.thorough_cases(
    "cpu-average_inc_pad-1",
    "gpu-average_inc_pad-1",
    "cpu-average_inc_pad-2",
    "gpu-average_inc_pad-2",
    "cpu-max-2",
    "gpu-max-2",
    "cpu-sum-3",
    "gpu-sum-3",
)
@pytest.mark.slow
@pytest.mark.skipif(not theano.config.cxx, reason="the host's pooling needs a compiler")
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
def test_as_the_host_to_the_last_bit(mode, ndim, each_device_kind):
    x = tt.TensorType("float32", (False,) * (ndim + 1))()
    sizes = [tt.lvector() for _ in range(3)]
    for whole in (True, False):
        z = host.Pool(whole, mode, ndim)(x, *sizes)
        weights = tt.arange(z.size).reshape(z.shape).astype("float32") * np.float32(1 / 7)
        outputs = [z]
        if mode == "max":
            outputs += [host.MaxPoolRop(whole, mode, ndim)(x, x * 2, *sizes)]
        gradient = theano.grad((z * weights).sum(), x)
        functions = [
            (lifted_function([x, *sizes], some, at_home=sizes), host_function([x, *sizes], some, linker="c|py"))
            for some in (outputs, [gradient])
        ]
        for case, (lead, lengths, *_, ignoring) in CASES.items():
            if len(lengths) != ndim or len(lead) != 1 or ignoring != whole:
                continue
            values = [sample(case, "float32") / np.float32(3), *numbers(case)]
            for i, (on_device, on_host) in enumerate(functions):
                if i and mode == "average_exc_pad" and any(values[-1]):
                    continue
                for mine, theirs in zip(on_device(*values), on_host(*values), strict=True):
                    check_to_the_last_bit(np.asarray(mine), theirs, mode, case)


def check_to_the_last_bit(mine, theirs, mode, case):
    """Compare with the host; the tolerance allows for divisions, in which OpenCL permits an error of 2.5 ulp."""
    divides_exactly = runtime_context().device.type & cl.device_type.CPU
    if mode.startswith("average") and not divides_exactly:
        np.testing.assert_allclose(mine, theirs, rtol=3 * np.finfo("float32").eps, err_msg=case)
    else:
        np.testing.assert_array_equal(mine, theirs, err_msg=case)


def second_gradient(z, x):
    """Return the gradient of the sum of squares of `z`, and the gradient of the sum of that gradient's squares."""
    gradient = theano.grad((tt.as_tensor_variable(z) ** 2).sum(), x)
    return [gradient, theano.grad((tt.as_tensor_variable(gradient) ** 2).sum(), x)]


def check_second_gradient(got, a):
    largest = a.reshape(2, 2, 2, 3, 2).max((2, 4)).repeat(2, 1).repeat(2, 2)
    np.testing.assert_allclose(got[0], np.where(a == largest, 2 * a, 0), rtol=1e-6)
    np.testing.assert_allclose(got[1], np.where(a == largest, 8 * a, 0), rtol=1e-6)


def test_lifted():
    x, a = tt.ftensor3(), np.random.default_rng(0).normal(size=(2, 4, 6)).astype("float32")
    z = host.pool_2d(x, (2, 2), ignore_border=True)
    mean = host.pool_2d(x, (2, 2), ignore_border=True, mode="average_exc_pad")
    f = lifted_function([x], [*second_gradient(z, x), theano.grad(mean.sum(), x)])
    got = [np.asarray(value) for value in f(a)]
    check_second_gradient(got, a)
    np.testing.assert_array_equal(got[2], np.full_like(a, 0.25))
    ops = set(ops_of(f))
    assert {OpenCLPool, OpenCLMaxPoolGrad, OpenCLAveragePoolGrad, OpenCLDownsampleFactorMaxGradGrad} <= ops
    assert not ops & {host.Pool, host.MaxPoolGrad, host.AveragePoolGrad, host.DownsampleFactorMaxGradGrad}


def test_gradients_of_device_ops():
    a = np.random.default_rng(0).normal(size=(2, 4, 6)).astype("float32")
    x = tt.ftensor3()
    z = OpenCLPool(True, "max")(as_opencl_variable(x, NAME), np.array([2, 2]))
    assert z.owner.inputs[2].data.tolist() == [2, 2]
    f = lifted_function([x], second_gradient(z, x))
    assert {OpenCLPool, OpenCLMaxPoolGrad, OpenCLDownsampleFactorMaxGradGrad} <= set(ops_of(f))
    check_second_gradient([np.asarray(value) for value in f(a)], a)


def test_what_stays_on_the_host():
    for dtype in ("bool", "complex64"):
        x = tt.TensorType(dtype, (False,) * 3)()
        assert host.Pool in ops_of(lifted_function([x], [host.Pool(True, "max")(x, (2, 2))]))
    x, by = tt.ftensor3(), tt.dtensor3()
    mixed = host.MaxPoolGrad(True)(x, x, by, (1, 1))
    assert host.MaxPoolGrad in ops_of(lifted_function([x, by], [mixed]))
    with pytest.raises(TypeError, match="float32 and float64"):
        wide = np.zeros((1, 2, 2))
        narrow = variable(wide.astype("float32"))
        OpenCLMaxPoolGrad(True)(narrow, narrow, variable(wide), (1, 1))

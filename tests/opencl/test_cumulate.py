"""Sums and products so far, on the device against NumPy and the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt

from optdb.opencl.ops.axes import OpenCLCumOp
from tests.opencl.layouts import device_array, run, variable
from tests.opencl.lifted import both

DTYPES = ["float32", "int8", "uint64", "bool"]


def numbers(dtype, shape):
    rng = np.random.default_rng(len(shape))
    return rng.integers(0, 2, shape).astype(bool) if dtype == "bool" else (rng.normal(size=shape) * 20).astype(dtype)


@pytest.mark.parametrize("mode", ["add", "mul"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_axes_and_layouts(each_device_kind, dtype, mode):
    ours = {axis: OpenCLCumOp(axis, mode) for axis in (None, 0, 1, -1)}
    numpys = np.cumsum if mode == "add" else np.cumprod
    for shape in [(3, 4, 5), (19, 1, 2), (1, 2, 0)]:
        value = numbers(dtype, shape)
        array = device_array(value, [2, 1, -1])
        for axis, op in ours.items():
            (got,) = run(op(variable(value)).owner, [array])
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(got, numpys(value, axis, dtype=dtype))


@pytest.mark.parametrize("dtype", ["float32", "int16", "float16"])
@pytest.mark.parametrize("shape, axis", [((5000,), 0), ((2, 1025), 1), ((700, 3), 0), ((513, 2), None)])
def test_long_rows(each_device_kind, dtype, shape, axis):
    value = (np.random.default_rng(1).normal(size=shape) * 9).astype(dtype)
    (got,) = run(OpenCLCumOp(axis, "add")(variable(value)).owner, [device_array(value)])
    want = np.cumsum(value, axis, dtype=dtype)
    if dtype == "int16" or each_device_kind == "cpu":
        np.testing.assert_array_equal(got, want)
    else:  # the order of additions is another one, and the exact sum is the judge
        exact = np.cumsum(value, axis, dtype="float64")
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(got, exact, rtol=eps, atol=20 * eps * np.abs(exact).max())


def test_vectors_numbers_and_no_numbers():
    for value in (np.float32(3), np.arange(4.0)[::-1], np.zeros(0)):
        value = np.asarray(value)
        (got,) = run(OpenCLCumOp(None, "add")(variable(value)).owner, [device_array(value)])
        np.testing.assert_array_equal(got, np.cumsum(value))
    value = np.array([np.nan, -0.0, np.inf])
    for part in (value, value[1:], value[1:2]):
        (got,) = run(OpenCLCumOp(0, "mul")(variable(part)).owner, [device_array(part)])
        np.testing.assert_array_equal(got, np.cumprod(part))
        assert np.signbit(got[-1]) == np.signbit(np.cumprod(part)[-1])


def test_an_axis_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="out of bounds"):
        OpenCLCumOp(2, "add")(variable(np.zeros((2, 2))))


def test_lifted_with_gradients():
    x = tt.dmatrix()
    a = np.random.default_rng(0).uniform(1, 2, (4, 3))
    outputs = [tt.cumsum(x), tt.cumprod(x, 0), tt.cumsum(x, -1)]
    outputs += [theano.grad((out**2).sum(), x) for out in outputs]
    got, want, ops = both([x], outputs, [a])
    for mine, theirs in zip(got, want):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    assert OpenCLCumOp in ops
    y = variable(a)
    ours = theano.function(
        [y], theano.grad(tt.as_tensor_variable(OpenCLCumOp(1, "mul")(y)).sum(), y), mode=theano.Mode("py", None)
    )
    z = tt.dmatrix()
    theirs = theano.function([z], theano.grad(tt.cumprod(z, 1).sum(), z), mode=theano.Mode("py", None))
    np.testing.assert_allclose(np.asarray(ours(device_array(a))), theirs(a), rtol=1e-12)

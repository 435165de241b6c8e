"""Batch normalization on the device against NumPy in double precision, and against the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.nnet import bn

from optdb.codegen.normalization import channels
from optdb.opencl.ops.batch_norm import (
    OpenCLBatchNormInference,
    OpenCLBatchNormTrain,
    OpenCLBatchNormTrainGrad,
)
from tests.opencl.layouts import device_array, run, variable
from tests.opencl.lifted import both, lifted_function, ops_of

# Shapes and the axes that are normalized over.
pytestmark = pytest.mark.optimized

CASES = {
    "per activation": ((5, 3), (0,)),
    "columns": ((7, 4, 21), (0,)),
    "spatial": ((2, 3, 5, 7), (0, 2, 3)),
    "spatial, small": ((4, 6, 1, 1), (0, 2, 3)),
    "channels last": ((3, 2, 4, 18), (0, 1, 2)),
    "every other axis": ((2, 3, 4, 5, 6), (0, 2, 4)),
    "the others": ((2, 3, 4, 5, 6), (1, 3)),
    "all": ((3, 4), (0, 1)),
    "rows": ((6, 40), (1,)),
    "no elements": ((0, 3), (0,)),
    "no channels": ((3, 0), (0,)),
}
EPSILON, FACTOR = np.array(1e-3), np.array(0.25)


def sample(case, dtype, of_channels=4):
    """Return an array that is not around zero, and some of one number for each channel."""
    rng = np.random.default_rng(len(case))
    shape, axes = CASES[case]
    x = rng.normal(20, 3, shape).astype(dtype)
    of_channel = [1 if axis in axes else n for axis, n in enumerate(shape)]
    return x, [rng.uniform(0.5, 2, of_channel).astype(dtype) for _ in range(of_channels)]


def wide(*arrays):
    return [array.astype("float64") for array in arrays]


def close(got, want, dtype):
    eps = np.finfo(dtype).eps
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == dtype and mine.shape == theirs.shape
        # What is normalized has lost digits: it was far from zero.
        np.testing.assert_allclose(mine, theirs, rtol=40 * eps, atol=40 * eps)


def trained(case, dtype, steps=None):
    x, of_channel = sample(case, dtype)
    numbers = [variable(value) for value in of_channel]
    node = OpenCLBatchNormTrain(CASES[case][1])(variable(x), *numbers[:2], 1e-3, 0.25, *numbers[2:], return_list=True)[
        0
    ].owner
    moved = [device_array(value, steps and [-1] * value.ndim) for value in of_channel]
    return run(node, [device_array(x, steps), *moved[:2], EPSILON, FACTOR, *moved[2:]])


def expected(case, dtype):
    x, of_channel = sample(case, dtype)
    axes = CASES[case][1]
    x, scale, bias, old_mean, old_var = wide(x, *of_channel)
    with np.errstate(all="ignore"):
        mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
        size = np.float64(np.prod([x.shape[axis] for axis in axes]))
        invstd = 1 / np.sqrt(var + EPSILON)
        new_mean = old_mean * (1 - FACTOR) + mean * FACTOR
        new_var = old_var * (1 - FACTOR) + size / (size - 1) * var * FACTOR
    return [(x - mean) * (scale * invstd) + bias, mean, invstd, new_mean, new_var]


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:Degrees of freedom")
@pytest.mark.parametrize("case", CASES)
def test_training(case, each_device_kind):
    close(trained(case, "float32"), expected(case, "float32"), "float32")


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("case", ["spatial", "columns"])
def test_dtypes_and_layouts(case, dtype):
    steps = [-1, 2, -3, 1][: len(CASES[case][0])]
    got, want = trained(case, dtype, steps), expected(case, dtype)
    if dtype == "float16":
        # The mean is kept in 16 bits, but not rounded before it is taken off.
        close(got, [value.astype(dtype) for value in want], dtype)
    else:
        close(got, want, dtype)


@pytest.mark.parametrize("case", ["spatial", "columns", "channels last", "rows", "all"])
def test_channels_in_parts(case, monkeypatch, each_device_kind):
    monkeypatch.setattr(channels.Channels, "parts", lambda self, context, nbytes: (-(-self.size // 3), 3))
    close(trained(case, "float64"), expected(case, "float64"), "float64")
    test_gradient(case, each_device_kind)


def test_large_channels_have_parts(each_device_kind):
    x = np.random.default_rng(0).normal(1e3, 1, (3, 2, 200, 120)).astype("float32")
    one = np.ones((1, 2, 1, 1), "float32")
    node = OpenCLBatchNormTrain((0, 2, 3))(variable(x), variable(one), variable(one), return_list=True)[0].owner
    out, mean, invstd = run(node, [device_array(value) for value in (x, one, one)] + [EPSILON, FACTOR])
    (exact,) = wide(x)
    np.testing.assert_allclose(mean, exact.mean((0, 2, 3), keepdims=True), rtol=1e-7)
    np.testing.assert_allclose(invstd, 1 / np.sqrt(exact.var((0, 2, 3), keepdims=True) + EPSILON), rtol=1e-6)
    np.testing.assert_allclose(out.std((0, 2, 3), dtype="float64"), 1, rtol=1e-3)


@pytest.mark.parametrize("case", CASES)
def test_gradient(case, each_device_kind):
    x, of_channel = sample(case, "float64", 3)
    dy = np.random.default_rng(3).normal(size=x.shape)
    axes = CASES[case][1]
    values = [x, dy, *of_channel]
    node = OpenCLBatchNormTrainGrad(axes)(*map(variable, values), 1e-3, return_list=True)[0].owner
    got = run(node, [*[device_array(value, [-1] * value.ndim) for value in values], EPSILON])
    storage = [[None], [None], [None]]
    with np.errstate(all="ignore"), pytest.warns() if not x.shape[0] else np.errstate():
        bn.AbstractBatchNormTrainGrad(axes).perform(node, [*values, EPSILON], storage)
    # What is taken off is about as large as the array, so digits are lost.
    for mine, (theirs,) in zip(got, storage, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("case", ["per activation", "spatial", "every other axis", "no elements"])
def test_use(case, dtype, each_device_kind):
    x, of_channel = sample(case, dtype)
    node = OpenCLBatchNormInference(CASES[case][1])(*map(variable, [x, *of_channel]), 1e-3).owner
    arrays = [device_array(value, [-1] * value.ndim) for value in (x, *of_channel)]
    x, scale, bias, mean, var = wide(x, *of_channel)
    want = (x - mean) * (scale / np.sqrt(var + EPSILON)) + bias
    close(run(node, [*arrays, EPSILON]), [want.astype(dtype)], dtype)


@pytest.mark.parametrize("axes", ["per-activation", "spatial", (1, 3)])
@pytest.mark.parametrize("running", [True, False])
def test_lifted_with_first_and_second_gradients(axes, running):
    x = tt.ftensor4("x")
    a = np.random.default_rng(0).normal(2, 3, (3, 4, 5, 6)).astype("float32")
    _, kept = bn._prepare_batch_normalization_axes(axes, 4)
    numbers = [tt.TensorType("float32", (False,) * len(kept))() for _ in range(4)]
    rng = np.random.default_rng(1)
    values = [rng.uniform(0.5, 1, [a.shape[axis] for axis in kept]).astype("float32") for _ in numbers]
    averages = {"running_mean": numbers[2], "running_var": numbers[3]} if running else {}
    outputs = list(bn.batch_normalization_train(x, *numbers[:2], axes, **averages))
    gradients = theano.grad((outputs[0] ** 3).sum(), [x, *numbers[:2]])
    outputs += [*gradients, theano.grad((gradients[0] ** 2).sum(), x)]
    used = bn.batch_normalization_test(x, *numbers, axes)
    outputs += [used, theano.grad((used**2).sum(), x)]
    got, want, ops = both([x, *numbers], outputs, [a, *values])
    assert len(got) == (11 if running else 9)
    for mine, theirs in zip(got, want, strict=True):
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=2e-5 * scale)
    assert {OpenCLBatchNormTrain, OpenCLBatchNormTrainGrad, OpenCLBatchNormInference} <= set(ops)


@pytest.mark.parametrize("name", ["fast_run", "fast_compile"])
def test_it_is_one_op_when_it_is_lifted(name, default):
    x, gamma, beta = tt.ftensor4(), tt.fvector(), tt.fvector()
    out = bn.batch_normalization_train(x, gamma, beta, "spatial")[0]
    outputs = [out, theano.grad((out**2).sum(), x)]
    f = theano.function([x, gamma, beta], outputs, mode=theano.Mode("vm", name).including("opencl"))
    assert {OpenCLBatchNormTrain, OpenCLBatchNormTrainGrad} <= set(ops_of(f))
    a, one = np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype("float32"), np.ones(3, "float32")
    normalized, gradient = f(a, one, one)
    np.testing.assert_allclose(normalized.mean((0, 2, 3)), 1, rtol=1e-5)
    # One takes no part: the squares of what has mean 0 and variance 1 have a sum that hardly changes.
    np.testing.assert_allclose(gradient, 0, atol=1e-3)


def test_gradients_of_device_ops(default):
    x, a = tt.fmatrix(), np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    b = np.ones((1, 4), "float32")
    one, z = (tt.TensorType("float32", (True, False))() for _ in range(2))
    host, device = (
        theano.grad((tt.as_tensor_variable(op((0,))(x, one, z)[0]) ** 3).sum(), [x, one])
        for op in (bn.AbstractBatchNormTrain, OpenCLBatchNormTrain)
    )
    (want, _), (got, _) = (both([x, one, z], outputs, [a, b, b])[0] for outputs in (host, device))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_what_stays_on_the_host():
    x, one, z = tt.fmatrix(), tt.dmatrix(), tt.dmatrix()
    mixed = theano.Apply(bn.AbstractBatchNormTrainGrad((0,)), [x, x, one, z, z, tt.constant(1e-3)], [x.type()] * 1)
    assert bn.AbstractBatchNormTrainGrad in ops_of(lifted_function([x, one, z], mixed.outputs))


def test_arrays_that_do_not_fit_are_refused():
    x, scale = np.zeros((3, 4), "float32"), np.zeros((1, 3), "float32")
    node = OpenCLBatchNormInference((0,))(variable(x), *[variable(scale)] * 4).owner
    with pytest.raises(ValueError, match=r"shapes \(3, 4\) and \(1, 3\)"):
        run(node, [device_array(x), *[device_array(scale)] * 4, EPSILON])
    with pytest.raises(ValueError, match=r"axes should be less than ndim \(<2\), but \(2,\) given"):
        OpenCLBatchNormTrain((2,))(variable(x), variable(scale), variable(scale))
    whole = variable(x.astype("int32"))
    with pytest.raises(TypeError, match="normalizes floats, not arrays of int32"):
        OpenCLBatchNormTrain((0,))(whole, whole, whole)
    node = OpenCLBatchNormTrain((0,))(variable(x), variable(scale), variable(scale), return_list=True)[0].owner
    with pytest.raises(ValueError, match="have to agree"):
        run(node, [device_array(x), device_array(scale), device_array(scale), EPSILON, FACTOR])

"""Batch normalization on the device agrees with NumPy in double precision, and with the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.nnet import bn

from optdb.opencl.ops.batch_norm import (
    OpenCLBatchNormInference,
    OpenCLBatchNormTrain,
    OpenCLBatchNormTrainGrad,
)
from tests.opencl.layouts import device_array, run, variable
from tests.opencl.lifted import both, lifted_function, ops_of

pytestmark = pytest.mark.optimized

EPSILON, FACTOR = np.array(1e-3), np.array(0.25)


@pytest.mark.slow_cases("True-per-activation", "True-axes2")
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
    # The gradient is about 0: the sum of the squares of normalized values hardly depends on the input.
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
    with pytest.raises(ValueError, match="must be equal"):
        run(node, [device_array(x), device_array(scale), device_array(scale), EPSILON, FACTOR])

"""Cross entropies of class labels on the device agree with the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.nnet import nnet

from optdb.opencl.ops.softmax import (
    OpenCLCrossentropyCategorical1Hot,
    OpenCLCrossentropyCategorical1HotGrad,
    OpenCLCrossentropySoftmax1HotWithBiasDx,
    OpenCLCrossentropySoftmaxArgmax1HotWithBias,
)
from tests.opencl.layouts import device_array, run, variable
from tests.opencl.lifted import both, lifted_function

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("classes", ["int8", "int64"])
def test_cross_entropy_and_its_gradient(dtype, classes):
    rng = np.random.default_rng(1)
    x, b, y = (
        tt.TensorType(dtype, (False,) * 2)("x"),
        tt.TensorType(dtype, (False,))(),
        tt.TensorType(classes, (False,))(),
    )
    values = [
        rng.normal(size=(6, 4)).astype(dtype),
        rng.normal(size=4).astype(dtype),
        rng.integers(0, 4, 6).astype(classes),
    ]
    outputs = nnet.crossentropy_softmax_argmax_1hot_with_bias(x, b, y)
    gradient = nnet.crossentropy_softmax_1hot_with_bias_dx
    outputs = [*outputs, gradient(x[:, 0], x[::-1], y), gradient(x[0, 0], x, y)]
    got, want, ops = both([x, b, y], outputs, values, at_home=[y])
    for mine, theirs in zip(got, want):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    assert {OpenCLCrossentropySoftmaxArgmax1HotWithBias, OpenCLCrossentropySoftmax1HotWithBiasDx} <= set(ops)


@pytest.mark.parametrize("wrong", [-1, 4])
def test_classes_that_there_are_not_are_refused(wrong):
    x, b = np.zeros((2, 4), "float32"), np.zeros(4, "float32")
    y = np.array([0, wrong])
    node = OpenCLCrossentropySoftmaxArgmax1HotWithBias()(variable(x), variable(b), y)[0].owner
    with pytest.raises(ValueError, match=f"y_i value out of bounds: class {wrong} of 4"):
        run(node, [device_array(x), device_array(b), y])


@pytest.mark.slow_cases("float64-1e-14", "float16-0.002")
@pytest.mark.parametrize("dtype, rtol", [("float32", 1e-6), ("float64", 1e-14), ("float16", 2e-3)])
def test_cross_entropy_of_classes(dtype, rtol):
    p, y = tt.TensorType(dtype, (False, False))(), tt.ivector()
    loss = tt.nnet.crossentropy_categorical_1hot(p, y)
    value = RNG.uniform(0.1, 1, (5, 3)).astype(dtype)
    value[0, 2] = 0
    classes = np.array([2, 0, -1, 1, 1], "int32")
    with np.errstate(divide="ignore"):
        got, want, ops = both([p, y], [loss, theano.grad((loss[1:] ** 2).sum(), p)], [value, classes], at_home=[y])
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=rtol)
    assert {OpenCLCrossentropyCategorical1Hot, OpenCLCrossentropyCategorical1HotGrad} <= set(ops)
    assert not {nnet.CrossentropyCategorical1Hot, nnet.CrossentropyCategorical1HotGrad} & set(ops)
    f = lifted_function([p, y], [loss], at_home=[y])
    np.testing.assert_array_equal(np.asarray(f(value[:, ::-1], np.zeros(7, "int32"))[0]).shape, (5,))
    for wrong in [[0, 0, 0, 0, 3], [0, 0, -4, 0, 0], [0, 0, 0]]:
        with pytest.raises(IndexError):
            f(value, np.array(wrong, "int32"))


def test_gradients_of_classes_are_checked():
    p, g = (RNG.uniform(-4, 4, shape).astype("float32") for shape in ((3, 2), 2))
    node = OpenCLCrossentropyCategorical1HotGrad()(variable(g), variable(p), tt.lvector()).owner
    classes = np.array([1, 0])
    (got,) = run(node, [device_array(g, [-2]), device_array(p, [1, -1]), classes])
    want = np.zeros_like(p)
    want[[0, 1], classes] = -g / p[[0, 1], classes]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    with pytest.raises(IndexError, match="3 gradients for 2 rows"):
        run(node, [device_array(np.ones(3, "float32")), device_array(p[:2]), np.array([0, 0, 0])])

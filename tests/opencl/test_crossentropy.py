"""Cross entropies of classes, on the device against the host."""

from __future__ import annotations

import numpy as np
import pytest
import theano.tensor as tt
from theano.tensor.nnet import nnet

from optdb.opencl.ops.softmax import (
    OpenCLCrossentropySoftmax1HotWithBiasDx,
    OpenCLCrossentropySoftmaxArgmax1HotWithBias,
)
from tests.opencl.layouts import device_array, run, variable
from tests.opencl.lifted import both


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

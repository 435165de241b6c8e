"""Largest elements and their places, and cross entropies of classes, on the device against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import theano.tensor as tt
from hypothesis import given, settings
from hypothesis import strategies as st
from theano.tensor.basic import Argmax
from theano.tensor.nnet import nnet

from optdb.opencl.ops.axes import OpenCLArgmax, OpenCLMaxAndArgmax
from optdb.opencl.ops.softmax import (
    OpenCLCrossentropySoftmax1HotWithBiasDx,
    OpenCLCrossentropySoftmaxArgmax1HotWithBias,
)
from tests.opencl.layouts import device_array, laid_out, run, shapes, variable
from tests.opencl.lifted import both


@given(st.data(), st.sampled_from(["float32", "int8", "float16", "uint64"]))
@settings(max_examples=40)
def test_the_first_of_the_largest(data, dtype):
    shape = tuple(max(length, 1) for length in data.draw(shapes(min_dims=1)))
    value, array = data.draw(laid_out(dtype, shape))
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    largest, places = run(OpenCLMaxAndArgmax(axes)(variable(value), return_list=True)[0].owner, [array])
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    rows = value.transpose(kept + axes).reshape([shape[axis] for axis in kept] + [-1])
    np.testing.assert_array_equal(largest, value.max(tuple(axes)))
    np.testing.assert_array_equal(places, rows.argmax(-1))
    assert places.dtype == "int64"
    np.testing.assert_array_equal(run(OpenCLArgmax(axes)(variable(value)).owner, [array])[0], places)


def test_nothing_has_no_largest_element():
    value = np.zeros((2, 0), "float32")
    with pytest.raises(ValueError, match=r"no largest element .* \(2, 0\)"):
        run(OpenCLArgmax([1])(variable(value)).owner, [device_array(value)])
    assert run(OpenCLArgmax([0])(variable(value)).owner, [device_array(value)])[0].shape == (0,)


def test_lifted():
    x = tt.ftensor3()
    a = np.random.default_rng(0).uniform(size=(3, 4, 5)).astype("float32")
    got, want, ops = both([x], [tt.max(x, axis=1), tt.argmax(x, axis=(0, 2)), Argmax([1])(x)], [a])
    for mine, theirs in zip(got, want):
        np.testing.assert_array_equal(mine, theirs)
    assert {OpenCLMaxAndArgmax, OpenCLArgmax} <= set(ops)


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

"""Softmax, cross entropies and their gradients agree with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.codegen.cross_entropy import (
    CrossEntropy,
    CrossEntropyGradient,
    Softmax,
    SoftmaxCrossEntropy,
    SoftmaxCrossEntropyGradient,
    SoftmaxGradient,
)
from optdb.codegen.source import work_dtype
from optdb.codegen.views import subtensor
from optdb.runtime.arrays import DeviceArray, from_host
from tests.codegen.layouts import compute, context, device_array

FLOATS = ["float16", "float32", "float64"]


def sample(dtype, *shape):
    return np.random.default_rng(sum(shape)).uniform(-5, 5, shape).astype(dtype)


def softmax(x):
    power = np.exp(x - x.max(1, keepdims=True))
    return power / power.sum(1, keepdims=True)


def close(got, want, dtype):
    assert got.dtype == dtype and got.shape == want.shape
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(got, want.astype(dtype), rtol=16 * eps, atol=128 * eps)


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (0, 4), (300, 7), (5, 130), (2, 1100), (2, 2100)])
def test_softmax_and_its_relatives(each_device_kind, dtype, shape):
    a, b, dy = sample(dtype, *shape), sample(dtype, shape[1]), sample(dtype, *shape)
    x, bias = device_array(a, [-1, 2]), device_array(b, [-1])
    wide = a.astype("float64")
    plain = softmax(wide) if a.size else wide
    close(compute(Softmax(context(), dtype), x)[0], plain, dtype)
    close(compute(Softmax(context(), dtype, logarithm=True), x)[0], np.log(plain), dtype)
    shifted = softmax(wide + b) if a.size else wide
    close(compute(Softmax(context(), dtype, bias=True), x, bias)[0], shifted, dtype)
    rows = plain.astype(dtype).astype("float64")
    gradient = dy * rows - (dy * rows).sum(1, keepdims=True) * rows
    close(
        compute(SoftmaxGradient(context(), dtype), device_array(dy), device_array(plain.astype(dtype)))[0],
        gradient,
        dtype,
    )


def test_softmax_of_what_is_not_finite(each_device_kind):
    a = np.array([[1, 2, np.nan], [0, -np.inf, 1], [1e4, 1e4, 0]], "float32")
    (got,) = compute(Softmax(context(), "float32"), device_array(a, [-1, 2]))
    e = np.exp(-1.0)
    np.testing.assert_allclose(got, [[np.nan] * 3, [e / (1 + e), 0, 1 / (1 + e)], [0.5, 0.5, 0]], rtol=1e-6)


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_cross_entropy_of_a_softmax(each_device_kind, dtype, index_dtype):
    a, b, y = sample(dtype, 6, 4), sample(dtype, 4), np.array([0, 3, 1, 1, 2, 0], "int8")
    operation = SoftmaxCrossEntropy(context(), dtype, index_dtype)
    loss, weights, likeliest = compute(operation, device_array(a, [2, -1]), device_array(b), y, outputs=3)
    want = softmax(a.astype("float64") + b)
    close(loss, -np.log(want[range(6), y]), dtype)
    close(weights, want, dtype)
    assert likeliest.dtype == index_dtype
    np.testing.assert_array_equal(likeliest, (a.astype("float64") + b).argmax(1))
    one_hot = np.eye(4)[y]
    for dy in (sample(dtype, 6), sample(dtype, 1), sample(dtype)):
        operation = SoftmaxCrossEntropyGradient(context(), dtype)
        (got,) = compute(operation, device_array(dy), device_array(weights), y)
        wide = dy.astype("float64").reshape(-1, 1)
        close(got, wide * (weights - one_hot), dtype)


def within(value, before=0, after=0):
    """Return an array on the device with `before` and `after` unused elements around each row."""
    columns = value.shape[-1]
    base = np.pad(value, [(0, 0)] * (value.ndim - 1) + [(before, after)], constant_values=77)
    return subtensor(from_host(context(), base), [slice(None)] * (value.ndim - 1) + [slice(before, before + columns)])


def check_entropies(arrays, a, bias):
    """Compare losses, likeliest classes, softmax weights and gradients with values computed in float64."""
    dtype, rows, y = a.dtype, np.arange(len(a)), np.arange(len(a)) * 5 % a.shape[1]
    dy = sample(dtype, len(a))
    with np.errstate(invalid="ignore"):
        wide = a.astype("float64") + bias
        power = np.exp(wide - wide.max(1, keepdims=True))
        loss = wide.max(1) - wide[rows, y] + np.log(power.sum(1))
    weights = power / power.sum(1, keepdims=True)
    is_class = np.eye(a.shape[1], dtype=bool)[y]
    gradient = dy[:, np.newaxis].astype("float64") * (weights - is_class)
    for given, want in ([], weights), ([device_array(dy)], gradient):
        operation = SoftmaxCrossEntropy(context(), dtype.name, "int32", gives_gradient=bool(given))
        got_loss, got, likeliest = compute(operation, *arrays, y, *given, outputs=3)
        np.testing.assert_array_equal(likeliest, wide.argmax(1))
        close(got_loss, loss, dtype)
        close(got, want, dtype)
        # The weights of long rows are below the absolute tolerance of `close`, so compare relative errors. The gradient
        # at a row's own class is a difference, so its relative error is larger.
        rtol = max(128 * np.finfo(work_dtype(dtype)).eps, 2 * np.finfo(dtype).eps)
        least = np.finfo(dtype).smallest_subnormal
        np.testing.assert_allclose(got[~is_class], want[~is_class], rtol=rtol, atol=least)


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [1, 3, 4, 12, 30, 1028, 2100, 2101])
@pytest.mark.parametrize("rows", [1, 7])
def test_rows_of_all_lengths_wherever_they_lie(each_device_kind, dtype, columns, rows):
    a, bias = sample(dtype, rows, columns), sample(dtype, columns)
    for before, after in (0, 0), (4, 4), (1, 0), (1, 3), (0, 3):
        check_entropies([within(a, before, after), within(bias)], a, bias)
    check_entropies([within(a), within(bias, 1)], a, bias)
    check_entropies([device_array(a, [-1, 2]), device_array(bias, [-1])], a, bias)
    one = DeviceArray(context().queue, (columns,), dtype, data=within(bias).base_data, strides=(0,))
    check_entropies([within(a), one], a, bias[0])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("columns", [5, 12, 1501, 2500])
def test_cross_entropy_of_what_is_not_finite(each_device_kind, dtype, columns):
    rng = np.random.default_rng(columns)
    a, bias, part = sample(dtype, 12, columns), np.zeros(columns, dtype), columns // 3
    a[0, :part] = a[1, part:] = a[2, 1:] = a[3, :-1] = a[4] = -np.inf
    a[5, part] = a[6, -1] = a[7, part::2] = np.inf
    a[8, part] = a[9, -1] = a[10, ::2] = np.nan
    # This row has a NaN between two infinities, which are the largest numbers.
    a[11, [0, part, -2, -1]] = -np.inf, np.inf, np.nan, np.inf
    order = rng.permutation(12)
    for before in (0, 1):
        check_entropies([within(a[order], before), within(bias)], a[order], bias)


@pytest.mark.parametrize("columns", [7, 33, 1500])
def test_the_likeliest_class_is_the_first_of_equal_ones(each_device_kind, columns):
    # A single NaN makes the whole row NaN, and is the largest element.
    a = np.random.default_rng(0).integers(0, 3, (40, columns)).astype("float32")
    a[::4, columns // 2 :: 2] = np.nan
    bias, y = np.zeros(columns, "float32"), np.arange(40) % columns
    operation = SoftmaxCrossEntropy(context(), "float32", "int32")
    arrays = device_array(a, [-1, 1]), device_array(bias)
    loss, weights, likeliest = compute(operation, *arrays, y, outputs=3)
    np.testing.assert_array_equal(likeliest, a.argmax(1))
    want = softmax(a.astype("float64"))
    np.testing.assert_allclose(weights, want, rtol=1e-5)
    np.testing.assert_allclose(loss, -np.log(want[range(40), y]), rtol=1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
def test_cross_entropy_of_a_distribution(dtype):
    p, y = np.abs(sample(dtype, 5, 3)) + dtype_one(dtype), np.array([2, 0, -1, 1, 1], "int32")
    (loss,) = compute(CrossEntropy(context(), dtype), device_array(p, [1, -1]), y)
    close(loss, -np.log(p[range(5), y].astype("float64")), dtype)
    g = sample("float64", 5)
    (got,) = compute(CrossEntropyGradient(context(), "float64", dtype), device_array(g, [-2]), device_array(p), y)
    want = np.zeros(p.shape)
    want[range(5), y] = -g / p[range(5), y]
    close(got, want, dtype)


def dtype_one(dtype):
    return np.ones((), dtype)


def test_what_does_not_fit_is_refused():
    a, b = device_array(sample("float32", 2, 3)), device_array(sample("float32", 2))
    with pytest.raises(ValueError, match=r"shapes \(2, 3\) and \(2,\)"):
        compute(Softmax(context(), "float32", bias=True), a, b)
    operation, bias = SoftmaxCrossEntropy(context(), "float32", "int64"), device_array(sample("float32", 3))
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match=f"y_i value out of bounds: class {wrong} of 3"):
            compute(operation, a, bias, np.array([0, wrong]), outputs=3)
    with pytest.raises(ValueError, match="1 classes for 2 rows"):
        compute(operation, a, bias, np.array([0]), outputs=3)
    with pytest.raises(ValueError, match="a bias of 2 numbers for 3 columns"):
        compute(operation, a, b, np.array([0, 0]), outputs=3)
    with pytest.raises(ValueError, match="3 gradients for 2 rows"):
        compute(SoftmaxCrossEntropyGradient(context(), "float32"), bias, a, np.array([0, 0]))
    for wrong in ([0, 3], [-4, 0], [0]):
        with pytest.raises(IndexError):
            compute(CrossEntropy(context(), "float32"), a, np.array(wrong))
    with pytest.raises(IndexError, match="3 gradients for 2 rows"):
        compute(CrossEntropyGradient(context(), "float32", "float32"), bias, a, np.array([0, 0, 0]))

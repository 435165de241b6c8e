"""Batch normalization agrees with NumPy's results in double precision."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from optdb.codegen.normalization import channels
from optdb.codegen.normalization.operations import (
    BatchNormGradient,
    BatchNormGradientSums,
    BatchNormInference,
    BatchNormMoments,
    BatchNormTraining,
)
from optdb.codegen.operation import ArraySpec
from tests.codegen.layouts import compute, context, device_array
from tests.effort import is_quick

#: Optimized kernels take twice as long to build. Quick runs optimize kernels only in tests of the accuracy of sums, and
#: once for each way to divide a channel: the arrays are declared `restrict`, which affects only optimized kernels.
OPTIMIZED = pytest.mark.usefixtures("optimized_kernels")
# Runs of all examples also optimize the other kernels.
pytestmark = [] if is_quick() else [pytest.mark.optimized]

#: Each case has a shape and the normalized axes.
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
    "quads": ((3, 2, 4, 5), (0, 2, 3)),
    "quads of columns": ((5, 3, 12), (0,)),
    "no elements": ((0, 3), (0,)),
    "no channels": ((3, 0), (0,)),
}
#: A case for each way to divide a channel among items.
DIVISIONS = ("columns", "spatial", "rows", "quads")
EPSILON, FACTOR = np.array(1e-3), np.array(0.25)


def sample(case, dtype, of_channels=4):
    """Return an array that is not centred at zero, and arrays with one number per channel."""
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
        # The array's values are far from zero, so the normalized values have lost digits.
        np.testing.assert_allclose(mine, theirs, rtol=40 * eps, atol=40 * eps)


def trained(case, dtype, steps=None):
    x, of_channel = sample(case, dtype)
    operation = BatchNormTraining(context(), ArraySpec.of(x), CASES[case][1], running=True)
    moved = [device_array(value, steps and [-1] * value.ndim) for value in of_channel]
    return compute(operation, device_array(x, steps), *moved[:2], EPSILON, FACTOR, *moved[2:], outputs=5)


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


@OPTIMIZED
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
        # The mean is stored in 16 bits, but not rounded before it is subtracted.
        close(got, [value.astype(dtype) for value in want], dtype)
    else:
        close(got, want, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["spatial", "columns", "channels last", "rows", "all"])
def test_channels_in_parts(case, monkeypatch, each_device_kind):
    monkeypatch.setattr(channels.Channels, "parts", lambda self, context, nbytes: (-(-self.size // 3), 3))
    close(trained(case, "float64"), expected(case, "float64"), "float64")
    test_gradient(case, each_device_kind)


@OPTIMIZED
def test_large_channels_have_parts(each_device_kind):
    x = np.random.default_rng(0).normal(1e3, 1, (3, 2, 200, 120)).astype("float32")
    one = np.ones((1, 2, 1, 1), "float32")
    operation = BatchNormTraining(context(), ArraySpec.of(x), (0, 2, 3), running=False)
    arrays = [device_array(value) for value in (x, one, one)]
    out, mean, invstd = compute(operation, *arrays, EPSILON, FACTOR, outputs=3)
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
    operation = BatchNormGradient(context(), ArraySpec.of(x), axes)
    got = compute(operation, *[device_array(value, [-1] * value.ndim) for value in values], EPSILON, outputs=3)
    scale, mean, invstd = of_channel
    size = np.prod([x.shape[axis] for axis in axes])
    with np.errstate(all="ignore"):
        centered = x - mean
        of_scale = (dy * centered).sum(axes, keepdims=True) * invstd
        of_mean = -(dy * scale * invstd).sum(axes, keepdims=True)
        of_variance = -0.5 * (dy * scale * centered).sum(axes, keepdims=True) * invstd**3
        of_mean = of_mean - 2 * of_variance * centered.sum(axes, keepdims=True) / size
        of_x = dy * scale * invstd + of_variance * 2 * centered / size + of_mean / size
    # The subtracted mean is about as large as the array's values, so digits are lost.
    for mine, theirs in zip(got, [of_x, of_scale, dy.sum(axes, keepdims=True)], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        *((case, "float32") for case in CASES),
        # Each way to divide a channel among items is also tested with the other dtypes of its kernels.
        *itertools.product([*DIVISIONS, "no elements"], ["float16", "float64"]),
    ],
)
def test_what_devices_exchange(case, dtype, each_device_kind, request):
    if case in DIVISIONS and dtype == "float32":
        request.getfixturevalue("optimized_kernels")
    x, (_, mean, invstd, _) = sample(case, dtype)
    dy = np.random.default_rng(3).normal(size=x.shape).astype(dtype)
    axes, result = CASES[case][1], np.result_type(dtype, "float32")
    eps = np.finfo(result).eps
    (moments,) = compute(BatchNormMoments(context(), ArraySpec.of(x), axes), device_array(x, [-1] * x.ndim))
    operation = BatchNormGradientSums(context(), ArraySpec.of(x), axes)
    (sums,) = compute(operation, *[device_array(value, [-1] * value.ndim) for value in (x, dy, mean, invstd)])
    assert moments.dtype == sums.dtype == result
    x, dy, mean, invstd = wide(x, dy, mean, invstd)
    own_mean, rest, squares = wide(moments)[0].reshape(3, -1)
    want = x.mean(axes)
    np.testing.assert_allclose(own_mean, want.ravel(), rtol=8 * eps)
    np.testing.assert_allclose(squares, ((x - x.mean(axes, keepdims=True)) ** 2).sum(axes).ravel(), rtol=99 * eps)
    if result == "float32":  # in double precision, `rest` does not improve the mean
        np.testing.assert_allclose(own_mean + rest, want.ravel(), rtol=0, atol=3 * eps)
    off = x - mean
    expected = [(dy * off * invstd).sum(axes), dy.sum(axes), off.sum(axes)]
    size = np.abs(dy * off * invstd).sum()
    np.testing.assert_allclose(
        sums, np.concatenate([np.ravel(value) for value in expected]), rtol=9 * eps, atol=eps * size
    )


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("case", ["per activation", "spatial", "every other axis", "no elements"])
def test_use(case, dtype, each_device_kind):
    x, of_channel = sample(case, dtype)
    operation = BatchNormInference(context(), ArraySpec.of(x), CASES[case][1])
    arrays = [device_array(value, [-1] * value.ndim) for value in (x, *of_channel)]
    x, scale, bias, mean, var = wide(x, *of_channel)
    want = (x - mean) * (scale / np.sqrt(var + EPSILON)) + bias
    close(compute(operation, *arrays, EPSILON), [want.astype(dtype)], dtype)


def without_float64(context):
    """Return the profile of a processor without float64."""
    return replace(context.profile.as_kind("cpu"), float64=False)


def hostile(case, shape, axes):
    """Return an array whose channels are hard to sum in float32, a gradient whose sums cancel, and scales."""
    rng = np.random.default_rng(7)
    order = np.arange(np.prod(shape)).reshape(shape)
    channel_shape = [1 if axis in axes else n for axis, n in enumerate(shape)]
    noise = rng.normal(size=shape)
    x = {
        "large mean": 3e5 + noise,
        "one outlier, first": np.where(order < np.prod(channel_shape), 1e6, noise),
        "drift": order * 1e-2 + noise,
        "constant": np.full(shape, 0.1),
        "two far values": np.where(order % 3 == 0, 1e4, -1e4) + noise,
    }[case]
    dy = np.where(order % 2, 1e4, -1e4) + rng.normal(size=shape)
    return x.astype("float32"), dy.astype("float32"), rng.uniform(0.5, 2, channel_shape).astype("float32")


HOSTILE = ("large mean", "one outlier, first", "drift", "constant", "two far values")


@OPTIMIZED
@pytest.mark.pairwise
@pytest.mark.slow
@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize(("shape", "axes"), [((6, 3, 9000), (0, 2)), ((150_001, 3), (0,))], ids=["rows", "columns"])
def test_sums_are_as_exact_as_in_float64(case, shape, axes, each_device_kind):
    x, dy, scale = hostile(case, shape, axes)
    exact, exact_dy = wide(x, dy)
    mean, var = exact.mean(axes, keepdims=True), exact.var(axes, keepdims=True)
    # `epsilon` is small compared with all variances, except the variance of a constant.
    epsilon, eps = np.array(1e-12), np.finfo("float32").eps
    training = BatchNormTraining(context(), ArraySpec.of(x), axes, running=False)
    arrays = [device_array(value) for value in (x, scale, scale)]
    _, got_mean, got_invstd = compute(training, *arrays, epsilon, FACTOR, outputs=3)
    np.testing.assert_allclose(got_mean, mean, rtol=eps, atol=eps * np.sqrt(var).max())
    np.testing.assert_allclose(got_invstd, 1 / np.sqrt(var + epsilon), rtol=8 * eps)

    gradient = BatchNormGradient(context(), ArraySpec.of(x), axes)
    moments = [device_array(value) for value in (scale, got_mean, got_invstd)]
    _, g_scale, g_bias = compute(gradient, device_array(x), device_array(dy), *moments, epsilon, outputs=3)
    centered = exact - got_mean.astype("float64")
    # Products of float32 numbers are rounded. Sums are not rounded, even if large terms cancel.
    size = np.abs(exact_dy * centered).sum(axes, keepdims=True) * got_invstd
    np.testing.assert_allclose(g_bias, exact_dy.sum(axes, keepdims=True), rtol=2 * eps, atol=1e-9 * np.abs(dy).sum())
    want = (exact_dy * centered).sum(axes, keepdims=True) * got_invstd
    assert (np.abs(g_scale - want) <= eps * size + 4 * eps * np.abs(want)).all()


@pytest.mark.parametrize("case", ["per activation", "spatial", "every other axis", "rows"])
def test_a_processor_without_float64(case, monkeypatch):
    monkeypatch.setattr(context(), "profile", without_float64(context()))
    close(trained(case, "float32"), expected(case, "float32"), "float32")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_kernels_need_no_float64_where_it_is_slow(dtype, monkeypatch):
    monkeypatch.setattr(context(), "profile", context().profile.as_kind("gpu"))
    x = ArraySpec.of(np.zeros((2, 3), dtype))
    operations = [
        BatchNormTraining(context(), x, (0,), running=True),
        BatchNormGradient(context(), x, (0,)),
        BatchNormInference(context(), x, (0,)),
        BatchNormMoments(context(), x, (0,)),
        BatchNormGradientSums(context(), x, (0,)),
    ]
    for operation in operations:
        assert not any("GA_USE_DOUBLE" in kernel.flags or "double" in kernel.code for kernel in operation.kernels())


@OPTIMIZED
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("index", [0, 5, 700])
def test_infinite_elements(value, index, each_device_kind):
    x = np.random.default_rng(1).normal(3, 1, (1500, 2)).astype("float32")
    x[index, 1] = value
    one = np.ones((1, 2), "float32")
    training = BatchNormTraining(context(), ArraySpec.of(x), (0,), running=False)
    arrays = [device_array(array) for array in (x, one, one)]
    _, mean, invstd = compute(training, *arrays, EPSILON, FACTOR, outputs=3)
    np.testing.assert_allclose(mean, x.mean(0, dtype="float64", keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(invstd, [[1 / np.sqrt(x[:, 0].var(dtype="float64") + EPSILON), np.nan]], rtol=1e-6)
    gradient = BatchNormGradient(context(), ArraySpec.of(x), (0,))
    arrays = [device_array(array) for array in (np.ones_like(x), x, one, one, one)]
    _, _, g_bias = compute(gradient, *arrays, EPSILON, outputs=3)
    np.testing.assert_allclose(g_bias, x.sum(0, dtype="float64", keepdims=True), rtol=1e-6)


def test_arrays_that_do_not_fit_are_refused():
    x, scale = device_array(np.zeros((3, 4), "float32")), device_array(np.zeros((1, 3), "float32"))
    with pytest.raises(ValueError, match=r"shapes \(3, 4\) and \(1, 3\)"):
        compute(BatchNormInference(context(), ArraySpec.of(x), (0,)), x, *[scale] * 4, EPSILON)
    with pytest.raises(ValueError, match="must be equal"):
        compute(BatchNormTraining(context(), ArraySpec.of(x), (0,), False), x, scale, scale, EPSILON, FACTOR, outputs=3)

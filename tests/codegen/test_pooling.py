"""Pooling, its gradients and their derivatives on the device agree with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.codegen.operation import ArraySpec
from optdb.codegen.pooling import LargestGradient, MeanGradient, PickAtLargest, PoolWindows, SumWhereLargest
from tests.codegen.layouts import compute, context, device_array
from tests.codegen.pooled import CASES, MODES, numbers, pooled, sample, windows
from tests.effort import is_quick

#: Optimized kernels are tested in float32, because the kernels' arrays are declared `restrict`.
OPTIMIZED = pytest.mark.usefixtures("optimized_kernels")
# Runs of all examples also optimize the other kernels.
pytestmark = [] if is_quick() else [pytest.mark.optimized]


def of_case(operation, case, x, mode="max"):
    return operation(context(), ArraySpec.of(x), len(CASES[case][1]), mode, CASES[case][5])


@OPTIMIZED
@pytest.mark.pairwise
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_of_any_layout(case, mode, each_device_kind):
    a = sample(case, "float32")
    operation = of_case(PoolWindows, case, a, mode)
    for steps in [1] * a.ndim, [-1, 2, -3, 1, -2][: a.ndim]:
        (z,) = compute(operation, device_array(a, steps), *numbers(case))
        want = pooled(case, a, mode)
        assert z.dtype == want.dtype and z.shape == want.shape
        np.testing.assert_allclose(z, want, rtol=1e-6)


@pytest.mark.parametrize("mode", ["max", "sum", "average_exc_pad"])
@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "int64", "uint64"])
def test_dtypes(dtype, mode):
    a = sample("2d padded", dtype)
    if dtype == "uint64":
        a %= 7
    (z,) = compute(of_case(PoolWindows, "2d padded", a, mode), device_array(a), *numbers("2d padded"))
    assert z.dtype == dtype
    np.testing.assert_allclose(z, pooled("2d padded", a, mode), rtol=1e-3 if dtype == "float16" else 1e-15)


@OPTIMIZED
@pytest.mark.parametrize("case", CASES)
def test_gradients_of_the_largest(case, each_device_kind):
    counts, parts = windows(case)
    x = sample(case, "float32")
    top = pooled(case, x, "max")
    rng = np.random.default_rng(2)
    by, point = rng.normal(size=top.shape).astype("float32"), rng.normal(size=x.shape).astype("float32")
    gx, forward, of_first = np.zeros_like(x), np.zeros_like(top), np.zeros_like(top)
    lead, ndim = CASES[case][0], len(counts)
    for at, part in parts.items():
        same = x[part] == top[(..., *at, *[None] * ndim)]
        gx[part] += same * by[(..., *at, *[None] * ndim)]
        forward[(..., *at)] = (same * point[part]).sum(tuple(range(-ndim, 0)))
        flat = (*lead, int(np.prod(x[part].shape[len(lead) :])))
        first = x[part].reshape(flat).argmax(-1)[..., None]
        of_first[(..., *at)] = np.take_along_axis(point[part].reshape(flat), first, -1)[..., 0]
    arrays = [device_array(value, [-1] * value.ndim) for value in (x, top, by, point)]
    for operation, which, want in [
        (LargestGradient, (0, 1, 2), gx),
        (SumWhereLargest, (0, 1, 3), forward),
        (PickAtLargest, (0, 3), of_first),
    ]:
        (got,) = compute(of_case(operation, case, x), *[arrays[i] for i in which], *numbers(case))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=operation.__name__)


@OPTIMIZED
@pytest.mark.pairwise
@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("case", [case for case in CASES if len(CASES[case][1]) == 2])
def test_gradients_of_means(case, mode, each_device_kind):
    x, (counts, parts) = sample(case, "float32"), windows(case)
    lead, _, ws, _, pad, whole = CASES[case]
    by = np.random.default_rng(2).normal(size=lead + counts).astype("float32")
    operation = of_case(MeanGradient, case, x, mode)
    values = [device_array(x), device_array(by, [-1] * by.ndim), *numbers(case)]
    if mode == "average_exc_pad" and any(pad):
        with pytest.raises(ValueError, match=r"padding must be zero for average_exc_pad, not \(2, 1\)"):
            compute(operation, *values)
        return
    want = np.zeros_like(x)
    for at, part in parts.items():
        seen = 1 if mode == "sum" else np.prod(ws if whole else x[part].shape[len(lead) :])
        want[part] += by[(..., *at, None, None)] / np.float32(seen)
    np.testing.assert_allclose(compute(operation, *values)[0], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        (([2], [2, 2], [0, 0]), r"ws must be a vector of size 2, not of shape \(1,\)"),
        (([2, 2], [0, 2], [0, 0]), r"no windows of size \(2, 2\), stride \(0, 2\)"),
        (([2, 2], [1, 1], [2, 0]), r"cover only padding \(2\)"),
    ],
)
def test_windows_that_there_are_not_are_refused(sizes, reason):
    a = np.zeros((1, 4, 4), "float32")
    with pytest.raises(ValueError, match=reason):
        compute(PoolWindows(context(), ArraySpec.of(a)), device_array(a), *map(np.array, sizes))


def test_arrays_that_do_not_fit_are_refused():
    a, b = np.zeros((2, 4, 4), "float32"), np.zeros((3, 2, 2), "float32")
    twos, ones, none = (np.array([number] * 2) for number in (2, 1, 0))
    gradient = LargestGradient(context(), ArraySpec.of(a))
    with pytest.raises(ValueError, match=r"LargestGradient .* must be equal"):
        compute(gradient, device_array(a), device_array(b), device_array(b), twos, twos, none)
    sums = PoolWindows(context(), ArraySpec.of(a), mode="sum", ignore_border=False)
    with pytest.raises(ValueError, match="padding must be zero when ignore_border is False"):
        compute(sums, device_array(a), twos, twos, ones)
    with pytest.raises(ValueError, match="an axis has length 0"):
        compute(sums, device_array(a[:, :0]), twos, twos, none)

"""Pooling, its gradients and what follows from them, on the device against NumPy and the host's C code.

The host's pooling in Python does not run with the NumPy that there is; its C code does.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import theano
import theano.tensor as tt
from theano.tensor.signal import pool as host

from optdb.opencl import as_opencl_variable
from optdb.opencl.ops.pooling import (
    OpenCLAveragePoolGrad,
    OpenCLDownsampleFactorMaxGradGrad,
    OpenCLMaxPoolGrad,
    OpenCLMaxPoolRop,
    OpenCLPool,
)
from optdb.runtime.library import cl
from tests.opencl.device import runtime_context
from tests.opencl.layouts import NAME, device_array, run, variable
from tests.opencl.lifted import both, host_function, lifted_function, ops_of

pytestmark = pytest.mark.optimized

MODES = ["max", "sum", "average_inc_pad", "average_exc_pad"]
# Lengths in front, lengths to pool, ws, stride, pad, ignore_border
CASES = {
    "2d": ((2, 3), (5, 6), (2, 3), (2, 3), (0, 0), True),
    "2d pairs": ((2,), (5, 7), (2, 2), (2, 2), (0, 0), True),
    "2d cut short": ((3,), (5, 7), (2, 3), (2, 3), (0, 0), False),
    "2d overlap": ((1, 2), (5, 6), (3, 2), (1, 1), (0, 0), True),
    "2d overlap, cut short": ((2,), (6, 5), (3, 4), (2, 2), (0, 0), False),
    "2d gaps": ((2,), (7, 8), (2, 1), (3, 4), (0, 0), True),
    "2d padded": ((2,), (4, 5), (3, 2), (1, 2), (2, 1), True),
    "2d alone": ((), (4, 4), (2, 2), (2, 2), (0, 0), True),
    "2d too large": ((2,), (3, 4), (4, 2), (4, 2), (0, 0), True),
    "2d none": ((0, 2), (4, 4), (2, 2), (2, 2), (0, 0), True),
    "1d": ((3,), (9,), (3,), (2,), (1,), True),
    "3d": ((2,), (4, 3, 5), (2, 2, 3), (2, 1, 2), (1, 0, 1), True),
    "3d cut short": ((2, 1), (4, 3, 5), (2, 2, 3), (2, 2, 3), (0, 0, 0), False),
}


def windows(case):
    """Return how many windows there are along each axis, and the part of the array that each sees."""
    _, lengths, ws, stride, pad, whole = CASES[case]
    counts = []
    for n, w, s, p in zip(lengths, ws, stride, pad):
        starts = range(0, max(n + 2 * p - w + 1, 0) if whole else n, s)
        covering = [i for i, start in enumerate(starts) if start + w >= n]
        counts.append(len(starts) if whole or w <= s else covering[0] + 1)
    parts = {}
    for at in itertools.product(*map(range, counts)):
        ends = [(i * s - p, min(i * s - p + w, n)) for i, s, p, w, n in zip(at, stride, pad, ws, lengths)]
        parts[at] = (..., *[slice(max(start, 0), end) for start, end in ends])
    return tuple(counts), parts


def sample(case, dtype):
    """Return an array with many equal elements."""
    lead, lengths, *_ = CASES[case]
    return np.random.default_rng(len(case)).integers(-3, 4, lead + lengths).astype(dtype)


def numbers(case):
    return [np.array(values) for values in CASES[case][2:5]]


def pooled(case, x, mode):
    counts, parts = windows(case)
    lead, lengths, ws, _, _, whole = CASES[case]
    axes = tuple(range(-len(lengths), 0))
    z = np.zeros(lead + counts, x.dtype)
    for at, part in parts.items():
        seen = x[part]
        if mode == "max":
            z[(..., *at)] = seen.max(axes)
            continue
        by = 1
        if mode != "sum":
            by = np.prod(ws) if mode == "average_inc_pad" and whole else np.prod(seen.shape[-len(lengths) :])
        # Sums of whole numbers wrap, as in the host's C code.
        total = seen.sum(axes, dtype="float64" if x.dtype.kind == "f" else x.dtype)
        z[(..., *at)] = total / by if x.dtype.kind == "f" else np.fix(total / by)
    return z


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES)
def test_of_any_layout(case, mode, each_device_kind):
    a = sample(case, "float32")
    op = OpenCLPool(CASES[case][5], mode, len(CASES[case][1]))
    for steps in [1] * a.ndim, [-1, 2, -3, 1, -2][: a.ndim]:
        (z,) = run(op(variable(a), *numbers(case)).owner, [device_array(a, steps), *numbers(case)])
        want = pooled(case, a, mode)
        assert z.dtype == want.dtype and z.shape == want.shape
        np.testing.assert_allclose(z, want, rtol=1e-6)


@pytest.mark.parametrize("mode", ["max", "sum", "average_exc_pad"])
@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "int64", "uint64"])
def test_dtypes(dtype, mode):
    a = sample("2d padded", dtype)
    if dtype == "uint64":
        a %= 7
    node = OpenCLPool(True, mode)(variable(a), *numbers("2d padded")).owner
    (z,) = run(node, [device_array(a), *numbers("2d padded")])
    assert z.dtype == dtype
    np.testing.assert_allclose(z, pooled("2d padded", a, mode), rtol=1e-3 if dtype == "float16" else 1e-15)


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_the_largest(case, each_device_kind):
    counts, parts = windows(case)
    x = sample(case, "float32")
    top = pooled(case, x, "max")
    rng = np.random.default_rng(2)
    by, point = rng.normal(size=top.shape).astype("float32"), rng.normal(size=x.shape).astype("float32")
    gx, forward, of_first = np.zeros_like(x), np.zeros_like(top), np.zeros_like(top)
    lead, whole, ndim = CASES[case][0], CASES[case][5], len(counts)
    for at, part in parts.items():
        same = x[part] == top[(..., *at, *[None] * ndim)]
        gx[part] += same * by[(..., *at, *[None] * ndim)]
        forward[(..., *at)] = (same * point[part]).sum(tuple(range(-ndim, 0)))
        flat = (*lead, int(np.prod(x[part].shape[len(lead) :])))
        first = x[part].reshape(flat).argmax(-1)[..., None]
        of_first[(..., *at)] = np.take_along_axis(point[part].reshape(flat), first, -1)[..., 0]
    arrays = [device_array(value, [-1] * value.ndim) for value in (x, top, by, point)]
    for op, which, want in [
        (OpenCLMaxPoolGrad(whole, ndim), (0, 1, 2), gx),
        (OpenCLDownsampleFactorMaxGradGrad(whole, "max", ndim), (0, 1, 3), forward),
        (OpenCLMaxPoolRop(whole, "max", ndim), (0, 3), of_first),
    ]:
        node = op(*[variable([x, top, by, point][i]) for i in which], *numbers(case)).owner
        (got,) = run(node, [*[arrays[i] for i in which], *numbers(case)])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=str(op))


@pytest.mark.parametrize("mode", MODES[1:])
@pytest.mark.parametrize("case", [case for case in CASES if len(CASES[case][1]) == 2])
def test_gradients_of_means(case, mode, each_device_kind):
    x, (counts, parts) = sample(case, "float32"), windows(case)
    lead, _, ws, _, pad, whole = CASES[case]
    by = np.random.default_rng(2).normal(size=lead + counts).astype("float32")
    node = OpenCLAveragePoolGrad(whole, mode)(variable(x), variable(by), *numbers(case)).owner
    values = [device_array(x), device_array(by, [-1] * by.ndim), *numbers(case)]
    if mode == "average_exc_pad" and any(pad):
        with pytest.raises(ValueError, match=r"padding must be zero for average_exc_pad, not \(2, 1\)"):
            run(node, values)
        return
    want = np.zeros_like(x)
    for at, part in parts.items():
        seen = 1 if mode == "sum" else np.prod(ws if whole else x[part].shape[len(lead) :])
        want[part] += by[(..., *at, None, None)] / np.float32(seen)
    np.testing.assert_allclose(run(node, values)[0], want, rtol=1e-5, atol=1e-6)


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
    """Compare with the host's; OpenCL allows a device to divide with an error of 2.5 units in the last place."""
    divides_exactly = runtime_context().device.type & cl.device_type.CPU
    if mode.startswith("average") and not divides_exactly:
        np.testing.assert_allclose(mine, theirs, rtol=3 * np.finfo("float32").eps, err_msg=case)
    else:
        np.testing.assert_array_equal(mine, theirs, err_msg=case)


def second_gradient(z, x):
    """Return the gradient of the sum of squares, and the gradient of the sum of its squares."""
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


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        (([2], [2, 2], [0, 0]), r"ws must be a vector of size 2, not of shape \(1,\)"),
        (([2, 2], [0, 2], [0, 0]), r"no windows of size \(2, 2\), stride \(0, 2\)"),
        (([2, 2], [1, 1], [2, 0]), r"see nothing but padding \(2\)"),
    ],
)
def test_windows_that_there_are_not_are_refused(sizes, reason):
    a = np.zeros((1, 4, 4), "float32")
    vectors = [tt.lvector() for _ in range(3)]
    node = OpenCLPool(True, "max")(variable(a), *vectors).owner
    with pytest.raises(ValueError, match=reason):
        run(node, [device_array(a), *map(np.array, sizes)])


def test_arrays_that_do_not_fit_are_refused():
    a, b = np.zeros((2, 4, 4), "float32"), np.zeros((3, 2, 2), "float32")
    node = OpenCLMaxPoolGrad(True)(variable(a), variable(b), variable(b), (2, 2)).owner
    with pytest.raises(ValueError, match="have to agree"):
        run(node, [device_array(a), device_array(b), device_array(b), *[np.array([2, 2])] * 2, np.array([0, 0])])
    node = OpenCLPool(False, "sum")(variable(a), *[tt.lvector() for _ in range(3)]).owner
    with pytest.raises(ValueError, match="padding must be zero when ignore border is False"):
        run(node, [device_array(a), np.array([2, 2]), np.array([2, 2]), np.array([1, 1])])
    with pytest.raises(ValueError, match="an axis has length 0"):
        run(node, [device_array(a[:, :0]), np.array([2, 2]), np.array([2, 2]), np.array([0, 0])])

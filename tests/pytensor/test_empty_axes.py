"""Reductions of axes without elements give the value of PyTensor's Python linker, or an error of the same class."""

from __future__ import annotations

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.tensor.elemwise import CAReduce
from pytensor.tensor.math import Min, ProdWithoutZeros
from pytensor.tensor.special import log_softmax, softmax

import optdb.pytensor

#: The mode of the device and the mode of the host have the same rewrites.
MODES = {
    "rewritten": (optdb.pytensor.OPENCL, Mode("py", optdb.pytensor.OPENCL.provided_optimizer)),
    "as written": (Mode(optdb.pytensor.OpenCLLinker(), None), Mode("py", None)),
}
#: Axes of arrays, each with shapes that contain zeros.
AXES = [
    (None, [(0,)]),
    (0, [(0, 3), (3, 0), (0, 0)]),
    ((0, 1), [(0, 2, 3), (2, 3, 0)]),
]


def _folded(scalar):
    return lambda x, axis: CAReduce(scalar, axis=axis)(x)


NAMES = ["sum", "prod", "max", "min", "argmax", "argmin", "any", "all", "mean", "var", "std", "logsumexp"]
REDUCTIONS = {
    **{name: getattr(pt, name) for name in NAMES},
    "cumsum": pt.cumsum,
    "cumprod": pt.cumprod,
    "softmax": softmax,
    "log_softmax": log_softmax,
    **{f"CAReduce of {op}": _folded(op) for op in (ps.add, ps.mul, ps.and_, ps.or_, ps.xor, ps.maximum, ps.minimum)},
    "ProdWithoutZeros": lambda x, axis: ProdWithoutZeros(axis=axis)(x),
    "Min": lambda x, axis: Min(axis=axis)(x),
    "Min from inf on": lambda x, axis: Min(axis=axis, initial=True)(x),
    "max from -inf on": lambda x, axis: pt.max(x, axis=axis, initial=-np.inf),
    "min from inf on": lambda x, axis: pt.min(x, axis=axis, initial=np.inf),
    "max of a fused loop": lambda x, axis: pt.exp(x).max(axis=axis) * 2,
    "log of a sum": lambda x, axis: pt.log(pt.exp(x).sum(axis=axis)),
    "gradient of max": lambda x, axis: pt.grad(x.max(axis=axis).sum(), x),
    "gradient of logsumexp": lambda x, axis: pt.grad(pt.logsumexp(x, axis=axis).sum(), x),
}
#: Errors that PyTensor raises if a reduction or its gradient does not support a dtype.
NOT_BUILT = (TypeError, NotImplementedError, AttributeError, AssertionError)
#: Reductions that have no value, or a special value, if there are no elements; each test run includes them.
QUICK = ("logsumexp", "max", "sum", "CAReduce of and_", "Min from inf on")
DTYPES = ["float64", "float16", "float32", "int8", "int64", "uint8", "uint64", "bool", "complex64", "complex128"]
CASES = [
    pytest.param(name, dtype, marks=[] if name in QUICK and dtype == "float64" else pytest.mark.slow)
    for name in REDUCTIONS
    for dtype in DTYPES
]


def _outcome(function, value):
    """Return the array that a call returns, or the class of its error."""
    try:
        return np.asarray(function(value))
    except Exception as error:
        return type(error)


def _compiled(x, result, mode):
    """Return a compiled function; if compiling it raises (when constants are folded), calls raise the error instead."""
    try:
        return pytensor.function([x], result, mode=mode, on_unused_input="ignore")
    except Exception as error:
        return _raising(error)


def _raising(error):
    def function(*args):
        raise error

    return function


@pytest.mark.parametrize("rewrites", MODES)
@pytest.mark.parametrize("name, dtype", CASES)
@pytest.mark.filterwarnings("ignore")
def test_values_and_errors_are_those_of_the_host(name, rewrites, dtype):
    on_device, on_host = MODES[rewrites]
    for axis, shapes in AXES:
        x = pt.tensor("x", dtype=dtype, shape=(None,) * len(shapes[0]))
        try:
            result = REDUCTIONS[name](x, axis)
        except NOT_BUILT:
            continue
        device, host = _compiled(x, result, on_device), _compiled(x, result, on_host)
        for shape in shapes:
            _check(device, host, np.ones(shape, dtype), result.type.dtype, f"axis {axis} of {shape}")


def _check(device, host, value, dtype, what):
    got, want = _outcome(device, value), _outcome(host, value)
    if isinstance(want, type) or isinstance(got, type):
        assert got is want, what
        return
    assert got.dtype == dtype and got.shape == want.shape, what
    # The host's own cumulative sums of short integers are int64, unlike the type of their variable.
    np.testing.assert_array_equal(got, want.astype(dtype), what)


def test_logsumexp_of_nothing():
    x = pt.matrix("x", dtype="float64")
    f = pytensor.function([x], [pt.logsumexp(x, axis=0), pt.log(pt.sum(pt.exp(x)))], mode="OPENCL")
    columns, total = f(np.zeros((0, 3)))
    assert columns.tolist() == [-np.inf] * 3 and total == -np.inf
    assert f(np.zeros((2, 3)))[1] == np.log(6)


@pytest.mark.parametrize("scalar", [ps.and_, ps.or_, ps.xor], ids=str)
def test_bits_of_floats_are_refused_as_by_the_host(scalar):
    x = pt.vector("x", dtype="float64")
    f = pytensor.function([x], CAReduce(scalar, axis=0)(x), mode="OPENCL")
    with pytest.raises(TypeError, match="No loop matching"):
        f(np.ones(3))

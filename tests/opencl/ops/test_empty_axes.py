"""Reductions of axes without elements give the value of Theano's Python linker, or an error of the same class."""

from __future__ import annotations

import numpy as np
import pytest
import theano.scalar as scalar
import theano.tensor as tt

from tests.opencl.lifted import host_function, lifted_function

#: Axes of arrays, each with shapes that contain zeros.
AXES = [
    (0, [(0, 3), (3, 0), (0, 0)]),
    ((0, 1), [(2, 0, 3), (2, 3, 0)]),
]


def _folded(op):
    return lambda x, axis: tt.elemwise.CAReduce(op, axis=axis)(x)


SCALARS = (scalar.add, scalar.mul, scalar.and_, scalar.or_, scalar.xor, scalar.maximum, scalar.minimum)
NAMES = ["sum", "prod", "max", "min", "argmax", "argmin", "any", "all", "mean", "var"]
REDUCTIONS = {
    **{name: getattr(tt, name) for name in NAMES},
    **{f"CAReduce of {op}": _folded(op) for op in SCALARS},
    "cumsum": lambda x, axis: tt.cumsum(x, axis if axis is None or isinstance(axis, int) else axis[0]),
    "ProdWithoutZeros": lambda x, axis: tt.elemwise.ProdWithoutZeros(axis=axis)(x),
    "max_and_argmax": lambda x, axis: list(tt.max_and_argmax(x, axis=axis)),
    "max of a fused loop": lambda x, axis: tt.exp(x).max(axis=axis) * 2,
    "gradient of max": lambda x, axis: tt.grad(x.max(axis=axis).sum(), x),
    "log of a sum": lambda x, axis: tt.log(tt.exp(x).sum(axis=axis)),
}
#: The reductions that have no value if there are no elements; each test run includes them.
QUICK = ("CAReduce of maximum", "argmax", "sum", "max_and_argmax")
DTYPES = ["float64", "float16", "float32", "int8", "uint8", "int64", "uint64", "bool", "complex128"]
#: Dtypes that behave like another dtype of their kind, so that only thorough tests include them.
THOROUGH = ["float32", "uint8", "int64"]
CASES = [
    pytest.param(
        *(name, dtype),
        marks=[
            *([] if name in QUICK and dtype == "float64" else [pytest.mark.slow]),
            *([pytest.mark.thorough] if dtype in THOROUGH else []),
        ],
    )
    for name in REDUCTIONS
    for dtype in DTYPES
]


def _outcomes(function, value):
    """Return the arrays that a call returns, or the class of its error."""
    try:
        return [np.asarray(out) for out in function(value)]
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("name, dtype", CASES)
@pytest.mark.filterwarnings("ignore")
def test_values_and_errors_are_those_of_the_host(name, dtype):
    for axis, shapes in AXES:
        x = tt.TensorType(dtype, (False,) * len(shapes[0]))("x")
        try:
            results = REDUCTIONS[name](x, axis)
        except (TypeError, NotImplementedError, AssertionError):
            continue  # the host does not support the reduction, or its gradient
        results = results if isinstance(results, list) else [results]
        device, host = lifted_function([x], results), host_function([x], results)
        for shape in shapes:
            value = np.ones(shape, dtype)
            got, want = _outcomes(device, value), _outcomes(host, value)
            if isinstance(want, type) or isinstance(got, type):
                assert got is want, f"axis {axis} of {shape}"
                continue
            for result, ours, theirs in zip(results, got, want, strict=True):
                assert (ours.dtype, ours.shape) == (result.dtype, theirs.shape)
                # The host's own cumulative sums of short integers are int64, unlike the type of their variable.
                np.testing.assert_array_equal(ours, theirs.astype(result.dtype), f"axis {axis} of {shape}")

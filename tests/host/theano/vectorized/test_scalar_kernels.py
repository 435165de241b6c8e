"""Scalar ops on whole arrays agree with the C code of a Composite that contains all ops for a dtype."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special as ss
from theano import scalar as ts
from theano.gof.utils import MethodNotDefined
from theano.scalar import basic_scipy as special
from theano.tensor import TensorType
from theano.tensor.elemwise import Elemwise, mul_without_zeros
from theano.tensor.nnet import sigm
from theano.tensor.nnet.nnet import softsign
from theano.tensor.xlogx import scalar_xlogx, scalar_xlogy0

from optdb.host.api import scalars
from optdb.host.theano.vectorized.scalar_kernels.entries import common_in_c
from optdb.host.theano.vectorized.scalar_kernels.kernels import known_ops
from tests.host.theano.vectorized.nodes import by_c, by_whole_arrays

UNARY = [
    *(ts.isnan, ts.isinf, ts.invert, ts.identity, ts.abs_, ts.sgn, ts.ceil, ts.floor, ts.trunc),
    *(ts.round_half_to_even, ts.round_half_away_from_zero, ts.neg, ts.inv, ts.log, ts.log2, ts.log10, ts.log1p),
    *(ts.exp, ts.exp2, ts.expm1, ts.sqr, ts.sqrt, ts.deg2rad, ts.rad2deg, ts.cos, ts.arccos, ts.sin, ts.arcsin),
    *(ts.tan, ts.arctan, ts.cosh, ts.arccosh, ts.sinh, ts.arcsinh, ts.tanh, ts.arctanh, ts.conj),
    *(special.erf, special.erfc, special.gamma, special.gammaln, special.psi, special.tri_gamma),
    *(special.j0, special.j1),
    *(sigm.scalar_sigmoid, sigm.scalar_softplus, sigm.ultra_fast_scalar_sigmoid, softsign.scalar_op, scalar_xlogx),
    *(ts.Cast(ts.get_scalar_type(name)) for name in ("bool", "int8", "int32", "int64", "float32", "float64")),
]
BINARY = [
    *(ts.lt, ts.gt, ts.le, ts.ge, ts.eq, ts.neq, ts.or_, ts.xor, ts.and_, ts.maximum, ts.minimum, ts.add, ts.mul),
    *(ts.sub, ts.true_div, ts.int_div, ts.mod, ts.pow, ts.second, ts.arctan2, mul_without_zeros, scalar_xlogy0),
]
#: The C code of these ops aborts for some numbers, so only results for ordinary numbers are compared.
DELICATE = [special.gammainc, special.gammaincc, special.chi2sf]
TERNARY = [ts.add, ts.mul, ts.switch, ts.clip, ts.inopenrange]  # equal to other range ops, which would be merged
#: Ops whose C code is missing or too limited for comparisons. `test_without_c_code` compares them with NumPy and SciPy.
NOT_IN_C = {
    *(scalars.Erfcx, scalars.Erfinv, scalars.Erfcinv, scalars.GammaU, scalars.GammaL, scalars.Jv, scalars.Iv),
    *(scalars.I0, scalars.I1, scalars.Real, scalars.Imag, scalars.Angle, scalars.Complex, scalars.ComplexFromPolar),
}

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]
DTYPES = ["bool", *INTEGERS, *FLOATS]


def applied(op, inputs):
    """Apply a scalar op; return the output, or None if the op has no C code for these inputs."""
    try:
        (out,) = op.make_node(*inputs).outputs
        op.c_code(out.owner, "n", ["x"] * len(inputs), ["z"], {"fail": "", "id": "0"})
    except (TypeError, NotImplementedError, MethodNotDefined, ts.ComplexError):
        return None
    return out


def composite(dtypes):
    """Return a Composite of all ops on inputs of three dtypes."""
    x, y, z = inputs = [ts.get_scalar_type(dtype)() for dtype in dtypes]
    outs = [applied(op, [x]) for op in UNARY]
    outs += [applied(op, [x, y]) for op in BINARY]
    outs += [applied(op, [x, y, z]) for op in TERNARY]
    kept = [out for out in outs if out is not None]
    return ts.Composite(inputs, kept), [out.owner.op for out in kept]


def values(dtype, seed, size=97):
    rng = np.random.RandomState(seed)
    if dtype == "bool":
        return rng.randint(0, 2, size).astype(dtype)
    if dtype.startswith("float"):
        array = (rng.standard_normal(size) * rng.choice([0.3, 2, 30], size)).astype(dtype)
        array[:8] = 0, -0.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 1
        return array
    low = 0 if dtype.startswith("u") else -9
    return rng.randint(low, 11, size).astype(dtype)


def without_zeros(array):
    return np.where(array == 0, 3, array).astype(array.dtype) if array.dtype.kind in "biu" else array


def defined(op, arrays, dtype):
    """Return a mask of the results that C defines; casts of out-of-range floats to integers are undefined."""
    x, *rest = arrays
    if isinstance(op, scalars.Cast) and x.dtype.kind == "f" and op.o_type.dtype.startswith(("int", "uint")):
        return np.isfinite(x) & (np.abs(x) < 100)
    if isinstance(op, scalars.Pow) and np.dtype(dtype).kind in "iu":
        # C computes the power as a double, and converts it to an integer, which is undefined if it is out of range.
        with np.errstate(all="ignore"):
            exact = x.astype("float64") ** rest[0]
        return np.isfinite(exact) & (np.abs(exact) <= np.iinfo(dtype).max)
    if isinstance(op, scalars.Gamma | scalars.GammaLn):
        return (x != 0) & (x != -np.inf)  # not at poles, where the sign of infinity differs between libraries
    if isinstance(op, scalars.Psi | scalars.TriGamma):
        return x > 0  # for other numbers, C returns 0
    if isinstance(op, scalars.J0 | scalars.J1):
        return np.isfinite(x)
    return np.ones(x.shape, bool)


MIXED = [
    ("int8", "float32", "int32"),
    ("float32", "float64", "float32"),
    ("uint8", "int8", "int16"),
    ("bool", "float32", "float64"),
    ("int64", "float64", "int8"),
    ("bool", "int16", "int64"),
]


def assert_as_in_c(op, ops, dtypes, arrays):
    node = Elemwise(op).make_node(*(TensorType(dtype, [False])() for dtype in dtypes))
    results = by_whole_arrays(node, arrays)
    for op, out, result, expected in zip(ops, node.outputs, results, by_c(node, arrays), strict=True):
        assert result.dtype == expected.dtype == out.type.dtype, op
        where = defined(op, arrays, out.type.dtype)
        tolerance = 3e-6 if "float32" in {out.type.dtype, *dtypes} else 3e-13
        np.testing.assert_allclose(
            result[where], expected[where], rtol=tolerance, atol=tolerance * 1e-3, err_msg=f"{op} of {dtypes}"
        )


@pytest.mark.thorough_cases(
    "int16-int16-int16", "int32-int32-int32", "uint8-uint8-uint8", "uint16-uint16-uint16", "uint32-uint32-uint32"
)
@pytest.mark.slow
@pytest.mark.parametrize("dtypes", [*((dtype,) * 3 for dtype in DTYPES), *MIXED], ids="-".join)
def test_as_c_computes_them(dtypes):
    op, ops = composite(dtypes)
    x, y, z = (values(dtype, seed) for seed, dtype in enumerate(dtypes))
    assert_as_in_c(op, ops, dtypes, (x, without_zeros(y), z))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_incomplete_gamma_functions_as_c_computes_them(dtype):
    x, y = inputs = [ts.get_scalar_type(dtype)() for _ in range(2)]
    outs = [op(x, y) for op in DELICATE]
    arrays = [np.random.RandomState(seed).uniform(0.5, 5, 50).astype(dtype) for seed in range(2)]
    assert_as_in_c(ts.Composite(inputs, outs), DELICATE, (dtype,) * 2, arrays)


def special_pairs():
    """Return the ops with little or no C code, each with a function of NumPy or SciPy."""
    x, y = np.random.RandomState(1).uniform(0.1, 0.9, (2, 50))
    wide = np.concatenate([-3 * x, 3 * x, [0.0, np.inf, np.nan]])
    return [
        *(
            (op, [wide], function)
            for op, function in ((special.erfcx, ss.erfcx), (special.i0, ss.i0), (special.i1, ss.i1))
        ),
        *((op, [x], function) for op, function in ((special.erfinv, ss.erfinv), (special.erfcinv, ss.erfcinv))),
        (special.erfinv, [np.array([-1, 0, 1.0])], ss.erfinv),
        (special.gammau, [x, 3 * y], lambda k, x: ss.gammaincc(k, x) * ss.gamma(k)),
        (special.gammal, [x, 3 * y], lambda k, x: ss.gammainc(k, x) * ss.gamma(k)),
        (special.jv, [3 * x, 5 * y], ss.jv),
        (special.iv, [3 * x, 5 * y], ss.iv),
    ]


@pytest.mark.parametrize("op, arrays, function", special_pairs(), ids=lambda value: getattr(value, "name", None))
@pytest.mark.parametrize("dtype", FLOATS)
def test_without_c_code(op, arrays, function, dtype):
    arrays = [array.astype(dtype) for array in arrays]
    (result,) = by_whole_arrays(node_of(op, arrays), arrays)
    expected = function(*(array.astype("float64") for array in arrays))
    assert result.dtype == dtype
    np.testing.assert_allclose(result, expected, rtol=1e-5 if dtype == "float32" else 1e-12)


def test_parts_of_complex_numbers():
    numbers = np.array([1 + 2j, -3 - 1j, 0, 2.5, complex(0, -4), complex(np.inf, 1)])
    for op, function in ((ts.real, np.real), (ts.imag, np.imag), (ts.angle, np.angle)):
        (result,) = by_whole_arrays(node_of(op, [numbers]), [numbers])
        assert result.dtype == "float64"
        np.testing.assert_array_equal(result, function(numbers))
    parts = [numbers.real.copy(), numbers.imag.copy()]
    (result,) = by_whole_arrays(node_of(ts.complex, parts), parts)
    np.testing.assert_array_equal(result, numbers)


def test_complex_numbers_from_polar_coordinates():
    radius, theta = np.array([0, 1.0, 2.5]), np.array([1.0, -2.0, 0.5])
    (result,) = by_whole_arrays(node_of(ts.complex_from_polar, [radius, theta]), [radius, theta])
    np.testing.assert_allclose(result, radius * np.exp(1j * theta), rtol=1e-14)
    with pytest.raises(ValueError, match="polar radius must be non-negative"):
        by_whole_arrays(node_of(ts.complex_from_polar, [radius, theta]), [-radius, theta])


def node_of(op, arrays):
    """Return an Elemwise node whose inputs have the types of some arrays."""
    return Elemwise(op).make_node(*(TensorType(array.dtype, [False] * array.ndim)() for array in arrays))


@pytest.mark.parametrize(
    "dtype, other, common",
    [
        ("int8", "int8", "int8"),
        ("int8", "uint8", "int32"),
        ("bool", "uint16", "int32"),
        ("int32", "uint32", "uint32"),
        ("uint32", "int64", "int64"),
        ("int64", "uint64", "uint64"),
        ("int64", "float32", "float32"),
        ("float32", "float64", "float64"),
        ("int32", "float16", "float64"),
        ("float32", "complex64", "complex64"),
    ],
)
def test_the_dtype_in_which_c_combines_numbers(dtype, other, common):
    assert common_in_c(dtype, other) == common_in_c(other, dtype) == common


UNSIGNED, SIGNED = np.array([4294967294, 3], "uint32"), np.array([-1, 2], "int32")
LARGE, NEAR = np.array([16777217], "int32"), np.array([16777216], "float32")


#: Ops on operands of several dtypes, and the expected results.
SEVERAL_DTYPES = [
    (ts.add, [UNSIGNED, UNSIGNED, np.zeros(2)], [4294967292, 6]),
    (ts.sub, [SIGNED, np.ones(2, "uint32")], [4294967294, 1]),
    (ts.add, [np.array([True, True]), np.array([True, False]), np.array([5, 5], "int16")], [7, 6]),
    (ts.or_, [SIGNED, np.zeros(2, "uint32")], [4294967295, 2]),
    (ts.lt, [SIGNED, np.ones(2, "uint32")], [False, False]),
    (ts.eq, [LARGE, NEAR], [True]),
    (ts.add, [LARGE, NEAR * 0], [16777216]),
    (ts.maximum, [SIGNED, np.ones(2, "uint32")], [-1, 2]),
    (ts.switch, [np.array([True, False]), SIGNED, UNSIGNED], [4294967295, 3]),
    (ts.inclosedrange, [SIGNED, np.zeros(2, "uint32"), np.full(2, 9)], [True, True]),
    (ts.clip, [SIGNED, np.zeros(2, "uint32"), np.full(2, 9)], [-1, 2]),
]


@pytest.mark.parametrize("op, arrays, expected", SEVERAL_DTYPES, ids=[str(case[0]) for case in SEVERAL_DTYPES])
def test_operands_of_several_dtypes(op, arrays, expected):
    (result,) = by_whole_arrays(node_of(op, arrays), arrays)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.slow
def test_operands_of_several_dtypes_in_c():
    for op, arrays, expected in SEVERAL_DTYPES:
        np.testing.assert_array_equal(by_c(node_of(op, arrays), arrays)[0], expected, err_msg=str(op))


def test_all_scalar_ops_are_compared():
    compared = {type(op) for op in [*UNARY, *BINARY, *TERNARY, *DELICATE]}
    assert set(known_ops()) == compared | NOT_IN_C

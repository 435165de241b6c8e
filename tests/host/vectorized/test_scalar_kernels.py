"""Scalar ops computed by whole arrays, against the C code of a Composite that holds all of them for a dtype."""

from __future__ import annotations

import numpy as np
import pytest
from theano import scalar as ts
from theano.gof.utils import MethodNotDefined
from theano.scalar import basic_scipy as special
from theano.tensor import TensorType
from theano.tensor.elemwise import Elemwise, mul_without_zeros
from theano.tensor.nnet import sigm
from theano.tensor.nnet.nnet import softsign
from theano.tensor.xlogx import scalar_xlogx, scalar_xlogy0

from optdb.host.api import scalars
from optdb.host.vectorized.scalar_kernels import known_ops
from tests.host.vectorized.nodes import by_c, by_whole_arrays

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
#: Aborted by C code for some numbers, and compared for ordinary ones.
DELICATE = [special.gammainc, special.gammaincc, special.chi2sf]
TERNARY = [ts.add, ts.mul, ts.switch, ts.clip, ts.inopenrange]  # equal to Theano's other ranges, and merged with them
#: What C has no code for, or too little to compare with. `test_without_c_code` compares them with NumPy and SciPy.
NOT_IN_C = {
    *(scalars.Erfcx, scalars.Erfinv, scalars.Erfcinv, scalars.GammaU, scalars.GammaL, scalars.Jv, scalars.Iv),
    *(scalars.I0, scalars.I1, scalars.Real, scalars.Imag, scalars.Angle, scalars.Complex, scalars.ComplexFromPolar),
}

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES = ["bool", *INTEGERS, "float32", "float64"]


def applied(op, inputs):
    """Return the output of a scalar op with C code for these inputs; None if it has none."""
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
    """Return where C defines the result: not where a float beyond the range is cast to integers."""
    x, *rest = arrays
    if isinstance(op, scalars.Cast) and x.dtype.kind == "f" and op.o_type.dtype.startswith(("int", "uint")):
        return np.isfinite(x) & (np.abs(x) < 100)
    if isinstance(op, scalars.Pow) and np.dtype(dtype).kind in "iu":
        # C computes it as a double, and its conversion is undefined beyond the range.
        with np.errstate(all="ignore"):
            exact = x.astype("float64") ** rest[0]
        return np.isfinite(exact) & (np.abs(exact) <= np.iinfo(dtype).max)
    if isinstance(op, scalars.Gamma | scalars.GammaLn):
        return (x != 0) & (x != -np.inf)  # poles, whose sign differs between libraries
    if isinstance(op, scalars.Psi | scalars.TriGamma):
        return x > 0  # C returns 0 for the others
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
        if isinstance(op, scalars.Psi | scalars.TriGamma):
            tolerance = max(tolerance, 1e-8)  # C's series are short
        np.testing.assert_allclose(
            result[where], expected[where], rtol=tolerance, atol=tolerance * 1e-3, err_msg=f"{op} of {dtypes}"
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


def test_all_scalar_ops_are_compared():
    compared = {type(op) for op in [*UNARY, *BINARY, *TERNARY, *DELICATE]}
    assert set(known_ops()) == compared | NOT_IN_C

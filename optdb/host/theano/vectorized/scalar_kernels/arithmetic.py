"""Kernels for arithmetic, float tests, comparisons, selection and bitwise operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optdb.host.api import scalars
from optdb.host.theano.vectorized.scalar_kernels import entries


def _folding(ufunc: np.ufunc, of_bools: np.ufunc, of_nothing: int) -> entries.Entry:
    def of_none(out: Any) -> None:
        out[...] = of_nothing

    def entry(signature: entries.ScalarDtypes) -> entries.ArrayKernel:
        dtype = signature.out
        operands = (dtype,) * len(signature.inputs)
        if not operands:
            return entries.ArrayKernel(of_none, operands)
        if len(operands) == 1:
            return entries.ArrayKernel(entries.copy, operands)
        return entries.ArrayKernel(of_bools if dtype == "bool" else ufunc, operands, folds=len(operands) > 2)

    return entry


def _true_div(signature: entries.ScalarDtypes) -> entries.ArrayKernel:
    discrete = not any(map(entries.is_inexact, signature.inputs))
    if discrete:
        return entries.ArrayKernel(np.true_divide, ("float64",) * 2)
    return entries.in_c_order(np.true_divide, entries.in_out_dtype(np.true_divide))(signature)


def _int_div(signature: entries.ScalarDtypes) -> entries.ArrayKernel:
    dtype = signature.out
    if dtype in ("float32", "float64"):
        return entries.ArrayKernel(_floor_of_quotient(signature.common), (dtype,) * 2, in_place=False)
    if dtype == "float16":
        return entries.ArrayKernel(np.floor_divide, (dtype,) * 2)
    return entries.ArrayKernel(_checked(np.floor_divide, "division"), (dtype,) * 2)


def _mod(signature: entries.ScalarDtypes) -> entries.ArrayKernel:
    dtype = signature.out
    if entries.is_real_float(dtype):
        return entries.ArrayKernel(np.remainder, (dtype,) * 2)
    return entries.ArrayKernel(_checked(np.remainder, "modulo"), (dtype,) * 2)


def _checked(divide: np.ufunc, operation: str) -> Callable[..., None]:
    def compute(x: Any, y: Any, out: Any) -> None:
        if not np.all(y):
            raise ZeroDivisionError(f"integer {operation} by zero")
        divide(x, y, out, casting="unsafe")  # NumPy divides booleans as int8

    return compute


def _floor_of_quotient(dtype: str) -> Callable[..., None]:
    """Return a function for integer division of floats as in C; the remainder may have a different dtype."""
    divided = np.dtype(dtype) if entries.is_real_float(dtype) else None

    def compute(x: Any, y: Any, out: Any) -> None:
        quotient = np.true_divide(x, y) if divided is None or divided == x.dtype else _divided_in(divided, x, y)
        negative = ((x < 0) != (y < 0)) & (y != 0) & (x != 0)
        np.floor(quotient, out)
        if np.any(negative):
            below = -np.floor(-quotient) - (np.fmod(x, y) != 0)
            np.copyto(out, below, where=negative)

    return compute


def _divided_in(dtype: np.dtype, x: Any, y: Any) -> Any:
    return np.true_divide(x.astype(dtype), y.astype(dtype))


def _pow(signature: entries.ScalarDtypes) -> entries.ArrayKernel:
    dtype = signature.out
    operands = (dtype,) * 2
    if entries.is_inexact(dtype) or dtype.startswith("uint"):
        return entries.ArrayKernel(np.power, operands)
    return entries.ArrayKernel(_integer_power, operands, in_place=False)


def _integer_power(x: Any, y: Any, out: Any) -> None:
    """Raise integers to powers; truncate the results of negative powers."""
    negative = y < 0
    np.power(x, np.where(negative, 0, y).astype(out.dtype), out)
    if np.any(negative):
        inverse = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0))
        np.copyto(out, inverse, where=negative, casting="unsafe")


def _product_without_zeros(x: Any, y: Any) -> Any:
    return np.where(x == 0, y, np.where(y == 0, x, np.multiply(x, y)))


def _without_zeros(x: Any, y: Any, out: Any) -> None:
    out[...] = _product_without_zeros(x, y)


def _square(x: Any, out: Any) -> None:
    np.multiply(x, x, out)


def _inverse(x: Any, out: Any) -> None:
    np.true_divide(entries.ONES[out.dtype], x, out)


def _round_from_zero(x: Any, out: Any) -> None:
    whole = np.trunc(x)
    half = np.abs(x - whole) >= 0.5
    np.add(whole, np.copysign(half.astype(x.dtype), x), out)


def _is_false(x: Any, out: Any) -> None:
    out[...] = False


def _float_test(test: np.ufunc) -> entries.Entry:
    def entry(signature: entries.ScalarDtypes) -> entries.ArrayKernel:
        (dtype,) = signature.inputs
        return entries.ArrayKernel(test if entries.is_inexact(dtype) else _is_false, (dtype,))

    return entry


def _sgn(signature: entries.ScalarDtypes) -> entries.ArrayKernel:
    return entries.ArrayKernel(entries.copy if signature.out == "bool" else np.sign, (signature.out,))


def _abs(signature: entries.ScalarDtypes) -> entries.ArrayKernel:
    (dtype,) = signature.inputs
    return entries.ArrayKernel(entries.copy if dtype == "bool" else np.absolute, (dtype,))


def _clip(signature: entries.ScalarDtypes) -> entries.ArrayKernel:
    if len({*signature.inputs}) == 1:
        return entries.ArrayKernel(_clip_in_one_dtype, (signature.out,) * 3, in_place=False)
    of_x, of_low, of_high = signature.inputs
    with_low, with_high, common = (
        entries.common_in_c(of_x, of_low),
        entries.common_in_c(of_x, of_high),
        signature.common,
    )

    def compute(x: Any, low: Any, high: Any, out: Any) -> None:
        below = x.astype(with_low) < low.astype(with_low)
        above = x.astype(with_high) > high.astype(with_high)
        rest = np.where(above, high.astype(common), x.astype(common))
        entries.copy(np.where(below, low.astype(common), rest), out)

    return entries.ArrayKernel(compute, signature.inputs, in_place=False)


def _clip_in_one_dtype(x: Any, low: Any, high: Any, out: Any) -> None:
    if np.all(low <= high):  # false for NaN
        np.minimum(np.maximum(x, low), high, out=out)
        return
    out[...] = np.where(x < low, low, np.where(x > high, high, x))


def _larger(ufunc: np.ufunc, beyond: np.ufunc) -> entries.Entry:
    """Return an entry that selects an operand by the comparison `beyond`, or NaN if either operand is NaN."""

    def entry(signature: entries.ScalarDtypes) -> entries.ArrayKernel:
        dtype, common = signature.out, signature.common
        if len({*signature.inputs}) == 1 or np.can_cast(signature.widest, common, "safe"):
            return entries.ArrayKernel(ufunc, (dtype,) * 2)

        def compute(x: Any, y: Any, out: Any) -> None:
            a, b = x.astype(common), y.astype(common)
            entries.copy(np.where(beyond(b, a), y.astype(dtype), x.astype(dtype)), out)
            if entries.is_real_float(common):
                entries.put_where((a != a) | (b != b), np.nan, out)

        return entries.ArrayKernel(compute, signature.inputs, in_place=False)

    return entry


def _switch(signature: entries.ScalarDtypes) -> entries.ArrayKernel:
    condition, *branches = signature.inputs
    dtype, common = signature.out, entries.common_in_c(*branches)
    choose = _choose if condition == "bool" else _choose_by_number
    if entries.is_as_good(common, dtype):
        return entries.ArrayKernel(choose, (condition, dtype, dtype), in_place=False)
    return entries.ArrayKernel(choose, (condition, common, common), in_place=False)


def _choose(condition: Any, x: Any, y: Any, out: Any) -> None:
    out[...] = np.where(condition, x, y)


def _choose_by_number(condition: Any, x: Any, y: Any, out: Any) -> None:
    out[...] = np.where(condition != 0, x, y)


def _in_range(signature: entries.ScalarDtypes) -> entries.ArrayKernel:
    above = np.greater if signature.op.openlow else np.greater_equal
    below = np.less if signature.op.openhi else np.less_equal
    of_x, of_low, of_high = signature.inputs
    with_low, with_high = entries.common_in_c(of_x, of_low), entries.common_in_c(of_x, of_high)
    dtypes = (with_low,) * 3 if with_low == with_high else signature.inputs

    def compute(x: Any, low: Any, high: Any, out: Any) -> None:
        is_above = above(x.astype(with_low, copy=False), low.astype(with_low, copy=False))
        np.logical_and(is_above, below(x.astype(with_high, copy=False), high.astype(with_high, copy=False)), out)

    return entries.ArrayKernel(compute, dtypes, in_place=False)


CONVERTING: dict[type, entries.Entry] = {
    scalars.Add: entries.in_c_order(np.add, _folding(np.add, np.logical_or, 0)),
    scalars.Mul: entries.in_c_order(np.multiply, _folding(np.multiply, np.logical_and, 1)),
    scalars.MulWithoutZeros: entries.in_c_order(
        _product_without_zeros, entries.in_out_dtype(_without_zeros, in_place=False)
    ),
    scalars.Sub: entries.in_c_order(np.subtract, entries.in_out_dtype(np.subtract)),
    scalars.TrueDiv: _true_div,
    scalars.IntDiv: _int_div,
    scalars.Mod: _mod,
    scalars.Pow: _pow,
    scalars.Neg: entries.in_out_dtype(np.negative),
    scalars.Sqr: entries.in_out_dtype(_square),
    scalars.Inv: entries.in_out_dtype(_inverse),
    scalars.Sgn: _sgn,
    scalars.RoundHalfAwayFromZero: entries.in_out_dtype(_round_from_zero),
    scalars.AND: entries.in_c_order(np.bitwise_and, entries.in_out_dtype(np.bitwise_and)),
    scalars.OR: entries.in_c_order(np.bitwise_or, entries.in_out_dtype(np.bitwise_or)),
    scalars.XOR: entries.in_c_order(np.bitwise_xor, entries.in_out_dtype(np.bitwise_xor)),
    scalars.Invert: entries.in_out_dtype(np.invert),
    scalars.Maximum: _larger(np.maximum, np.greater),
    scalars.Minimum: _larger(np.minimum, np.less),
    scalars.Clip: _clip,
}
SPECIAL: dict[type, entries.Entry] = {
    scalars.Abs: _abs,
    scalars.IsNan: _float_test(np.isnan),
    scalars.IsInf: _float_test(np.isinf),
    scalars.EQ: entries.in_common_dtype(np.equal),
    scalars.NEQ: entries.in_common_dtype(np.not_equal),
    scalars.LT: entries.in_common_dtype(np.less),
    scalars.LE: entries.in_common_dtype(np.less_equal),
    scalars.GT: entries.in_common_dtype(np.greater),
    scalars.GE: entries.in_common_dtype(np.greater_equal),
    scalars.InRange: _in_range,
    scalars.Switch: _switch,
}

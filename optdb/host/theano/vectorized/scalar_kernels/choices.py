"""Comparisons, choices and bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from optdb.host.api import scalars
from optdb.host.theano.vectorized.scalar_kernels.entries import (
    ArrayKernel,
    Entry,
    ScalarDtypes,
    common_in_c,
    copy,
    in_c_order,
    in_common_dtype,
    in_out_dtype,
    is_as_good,
    is_real_float,
    put_where,
)


def _clip(signature: ScalarDtypes) -> ArrayKernel:
    if len({*signature.inputs}) == 1:
        return ArrayKernel(_clip_in_one_dtype, (signature.out,) * 3, in_place=False)
    of_x, of_low, of_high = signature.inputs
    with_low, with_high, common = common_in_c(of_x, of_low), common_in_c(of_x, of_high), signature.common

    def compute(x: Any, low: Any, high: Any, out: Any) -> None:
        below = x.astype(with_low) < low.astype(with_low)
        above = x.astype(with_high) > high.astype(with_high)
        rest = np.where(above, high.astype(common), x.astype(common))
        copy(np.where(below, low.astype(common), rest), out)

    return ArrayKernel(compute, signature.inputs, in_place=False)


def _clip_in_one_dtype(x: Any, low: Any, high: Any, out: Any) -> None:
    if np.all(low <= high):  # false for NaN
        np.minimum(np.maximum(x, low), high, out=out)
        return
    out[...] = np.where(x < low, low, np.where(x > high, high, x))


def _larger(ufunc: np.ufunc, beyond: np.ufunc) -> Entry:
    """Return an entry that selects the operand that is `beyond` the other operand, or NaN if either is NaN."""

    def entry(signature: ScalarDtypes) -> ArrayKernel:
        dtype, common = signature.out, signature.common
        if len({*signature.inputs}) == 1 or np.can_cast(signature.widest, common, "safe"):
            return ArrayKernel(ufunc, (dtype,) * 2)

        def compute(x: Any, y: Any, out: Any) -> None:
            a, b = x.astype(common), y.astype(common)
            copy(np.where(beyond(b, a), y.astype(dtype), x.astype(dtype)), out)
            if is_real_float(common):
                put_where((a != a) | (b != b), np.nan, out)

        return ArrayKernel(compute, signature.inputs, in_place=False)

    return entry


def _switch(signature: ScalarDtypes) -> ArrayKernel:
    condition, *branches = signature.inputs
    dtype, common = signature.out, common_in_c(*branches)
    choose = _choose if condition == "bool" else _choose_by_number
    if is_as_good(common, dtype):
        return ArrayKernel(choose, (condition, dtype, dtype), in_place=False)
    return ArrayKernel(choose, (condition, common, common), in_place=False)


def _choose(condition: Any, x: Any, y: Any, out: Any) -> None:
    out[...] = np.where(condition, x, y)


def _choose_by_number(condition: Any, x: Any, y: Any, out: Any) -> None:
    out[...] = np.where(condition != 0, x, y)


def _in_range(signature: ScalarDtypes) -> ArrayKernel:
    above = np.greater if signature.op.openlow else np.greater_equal
    below = np.less if signature.op.openhi else np.less_equal
    of_x, of_low, of_high = signature.inputs
    with_low, with_high = common_in_c(of_x, of_low), common_in_c(of_x, of_high)
    dtypes = (with_low,) * 3 if with_low == with_high else signature.inputs

    def compute(x: Any, low: Any, high: Any, out: Any) -> None:
        is_above = above(x.astype(with_low, copy=False), low.astype(with_low, copy=False))
        np.logical_and(is_above, below(x.astype(with_high, copy=False), high.astype(with_high, copy=False)), out)

    return ArrayKernel(compute, dtypes, in_place=False)


CONVERTING: dict[type, Entry] = {
    scalars.AND: in_c_order(np.bitwise_and, in_out_dtype(np.bitwise_and)),
    scalars.OR: in_c_order(np.bitwise_or, in_out_dtype(np.bitwise_or)),
    scalars.XOR: in_c_order(np.bitwise_xor, in_out_dtype(np.bitwise_xor)),
    scalars.Invert: in_out_dtype(np.invert),
    scalars.Maximum: _larger(np.maximum, np.greater),
    scalars.Minimum: _larger(np.minimum, np.less),
    scalars.Clip: _clip,
}
SPECIAL: dict[type, Entry] = {
    scalars.EQ: in_common_dtype(np.equal),
    scalars.NEQ: in_common_dtype(np.not_equal),
    scalars.LT: in_common_dtype(np.less),
    scalars.LE: in_common_dtype(np.less_equal),
    scalars.GT: in_common_dtype(np.greater),
    scalars.GE: in_common_dtype(np.greater_equal),
    scalars.InRange: _in_range,
    scalars.Switch: _switch,
}

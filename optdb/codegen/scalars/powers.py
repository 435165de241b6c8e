"""Powers with constant exponents, by products and square roots, which take a tenth of the time of ``pow``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from optdb.codegen.scalars.program import Number, Scalar

Value = TypeVar("Value")

#: The largest absolute value of an exponent that is computed by products.
_LARGEST = 4.5


def power(
    base: Value, exponent: Any, dtype: str, apply: Callable[[Scalar, Sequence[Value | Number]], Value]
) -> Value | None:
    """Return a power of a float as products and roots, applied with `apply`; None if ``pow`` must be used.

    Only integers and half-integers are supported exponents. The results for zeros, infinities and NaN are those of
    ``pow``.
    """
    doubled = 2 * float(exponent)
    if not 0 < abs(doubled) <= 2 * _LARGEST or doubled != int(doubled):
        return None
    whole, half = divmod(abs(int(doubled)), 2)
    mul = Scalar("Mul", dtype)
    if half:
        # The root of -0 is -0, but its powers are not: adding 0 turns -0 into 0.
        base = apply(Scalar("Add", dtype), [base, Number.of(0, dtype)])
    factors: list[Value] = [base] * whole
    if half:
        factors.append(apply(Scalar("Sqrt", dtype), [base]))
    result = factors[0]
    for factor in factors[1:]:
        result = apply(mul, [result, factor])
    if exponent < 0:
        result = apply(Scalar("Inv", dtype), [result])
    if half:
        # The root of minus infinity is NaN, but its power is not.
        is_lowest = apply(Scalar("EQ", "bool"), [base, Number.of(-np.inf, dtype)])
        limit = Number.of(np.inf if exponent > 0 else 0, dtype)
        result = apply(Scalar("Switch", dtype), [is_lowest, limit, result])
    return result

"""Scalar operations on numbers, some of which each call of an exported function computes from lengths."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optdb.runtime.expressions import HOST_SCALAR_OPS, HostScalar, host_scalar
from optdb.runtime.sizes import SymInt, as_int, example_value, largest, operand, smallest

#: Maps scalar operations on integers to functions of symbolic sizes.
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Add": lambda *x: functools.reduce(operator.add, x),
    "Mul": lambda *x: functools.reduce(operator.mul, x),
    "Sub": operator.sub,
    "IntDiv": operator.floordiv,
    "Mod": operator.mod,
    "Neg": operator.neg,
    "Abs": abs,
    "Maximum": largest,
    "Minimum": smallest,
    "Sqr": lambda x: x * x,
}
#: Maps comparisons to functions, each of which returns the result for the traced call and records a guard for it.
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "NEQ": operator.ne,
}
#: Maps scalar operations to their names in ``optdb.runtime.expressions``, for example ``IntDiv`` to ``int_div``.
_HOST_SCALAR_OPS = {name.title().replace("_", ""): name for name in HOST_SCALAR_OPS}


#: The scalar operations that record no guards, if the divisor of a division is a plain number.
_WITHOUT_GUARDS = frozenset(
    {"Add", "Mul", "Sub", "IntDiv", "Mod", "Neg", "Maximum", "Minimum", "Sqr", "Identity", "Second", "Cast"}
)


class NotFollowed(Exception):
    """Raised if no rule reproduces a result in each call."""


def number_of(scalar: str, dtype: str, dtypes: Sequence[str], values: Sequence[Any]) -> Any:
    """Return the result of a scalar operation on numbers; raise `NotFollowed` if no rule applies.

    `dtype` is the result's dtype, and `dtypes` are the dtypes of the values.
    """
    if scalar in _COMPARISONS:
        return np.bool_(_COMPARISONS[scalar](*values))
    if scalar == "Switch":
        return cast_number(values[1] if values[0] else values[2], dtype)
    if scalar == "Identity":
        return values[0]
    if scalar in ("Second", "Cast"):
        return cast_number(values[-1], dtype)
    is_whole = "int" in dtype and all("int" in given or given == "bool" for given in dtypes)
    if scalar not in (_ARITHMETIC if is_whole else _HOST_SCALAR_OPS):
        raise NotFollowed
    if is_whole:
        try:
            return _fitting(_ARITHMETIC[scalar](*map(as_int, values)), dtype)
        except ZeroDivisionError:
            raise NotFollowed from None
    compute = functools.partial(_host_scalar, _HOST_SCALAR_OPS[scalar], dtype)
    return functools.reduce(compute, values) if scalar in ("Add", "Mul") else compute(*values)


def needs_guard(scalar: str, dtype: str, values: Sequence[Any]) -> bool:
    """Return whether `number_of` may restrict a trace to the calls in which a test has the same result."""
    by_size = scalar in ("IntDiv", "Mod") and isinstance(values[-1], SymInt)
    return scalar not in _WITHOUT_GUARDS or by_size or dtype != "int64"


def cast_number(value: Any, dtype: str) -> Any:
    """Return a number cast to a dtype; raise `NotFollowed` if a symbolic integer does not fit."""
    if isinstance(value, SymInt) and not (isinstance(value.value, int) and "int" in dtype):
        return _host_scalar("cast", dtype, value)
    return _fitting(value, dtype)


def _fitting(value: Any, dtype: str) -> Any:
    """Return an integer in a dtype: a plain integer overflows as in NumPy, and guards keep a symbolic one in range."""
    if not isinstance(value, SymInt):
        return np.asarray(value).astype(dtype)[()]
    limits = np.iinfo(dtype)
    if dtype != "int64" and not (int(limits.min) <= value <= int(limits.max)):
        raise NotFollowed
    return value


def _host_scalar(name: str, dtype: str, *values: Any) -> Any:
    sizes = [value for value in values if isinstance(value, SymInt)]
    result = host_scalar(name, dtype, *map(example_value, values))
    if not sizes:
        return result
    if result.dtype.kind in "iub":
        result = int(result)
    return sizes[0].rules.symbol(result, HostScalar(name, dtype, tuple(map(operand, values))))

"""Operators with the result types of NumPy 1, for NumPy 2.

NumPy 1 promoted scalars and 0-d arrays by value: ``float32_array * np.float64(0.1)`` was float32, and ``np.float32(1) *
0.1`` was float64. NumPy 2 promotes by type alone (NEP 50). Theano relies on promotion by value, so `translation`
replaces the operators in Theano's modules with the functions in `OPERATORS`. If the result types of the two NumPy
versions differ, these functions convert an operand; otherwise, they only cost two dictionary look-ups.

The rules of NumPy 1, which `result_dtype` implements:

- a Python number is a scalar of the default type: int64, float64 or complex128;
- two scalars promote by type;
- an array with dimensions and a scalar promote by type if the scalar is of a higher kind (of bool, integer, inexact);
  otherwise, the array's type and the smallest type that holds the scalar's value are promoted.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import numpy as np

PYTHON_NUMBER, NUMPY_SCALAR, ARRAY = 1, 2, 3

#: Maps the exact types of operands to roles; bool is omitted, because it behaves the same in both versions.
_ROLES: dict[type, int] = {
    int: PYTHON_NUMBER,
    float: PYTHON_NUMBER,
    complex: PYTHON_NUMBER,
    **dict.fromkeys(
        {np.dtype(code).type for code in np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?"}, NUMPY_SCALAR
    ),
    np.ndarray: ARRAY,
    np.memmap: ARRAY,
    np.matrix: ARRAY,
}
_role = _ROLES.get

#: The types of Python numbers. If both operands are Python integers, NumPy 2 treats them as int64, regardless of the
#: value.
_PYTHON_TYPES = (int, float, complex)

Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]

_KINDS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 2}


def result_dtype(array: np.dtype, scalar: Any) -> np.dtype:
    """Return NumPy 1's result type for an array with dimensions and a scalar."""
    value = np.asarray(scalar)
    if value.dtype.kind not in _KINDS or _KINDS[value.dtype.kind] > _KINDS[array.kind]:
        return np.promote_types(array, value.dtype)
    return np.promote_types(array, _smallest(value, array))


def convert(a: Any, b: Any) -> tuple[Any, Any]:
    """Convert two operands so that NumPy 2 returns NumPy 1's result; return objects other than numbers unchanged."""
    role_a, role_b = _role(type(a)), _role(type(b))
    if role_a is None or role_b is None:
        return a, b
    if role_a is ARRAY and not a.ndim:
        role_a = NUMPY_SCALAR
    if role_b is ARRAY and not b.ndim:
        role_b = NUMPY_SCALAR
    if role_a is role_b:
        return a, b
    if role_a is ARRAY:
        return a, _beside_array(a.dtype, b)
    if role_b is ARRAY:
        return _beside_array(b.dtype, a), b
    # A Python number and a NumPy scalar promote by type; the number counts as a scalar of the default type.
    return (_strong(a), b) if role_a is PYTHON_NUMBER else (a, _strong(b))


def _smallest(value: np.ndarray, array: np.dtype) -> np.dtype:
    """Return the smallest type that holds the value of a 0-d array; prefer signed types if `array` is signed."""
    smallest = np.min_scalar_type(value)
    if smallest.kind == "u" and array.kind == "i":
        signed = np.dtype(f"i{smallest.itemsize}")
        if int(value) <= np.iinfo(signed).max:
            return signed
    return smallest


def _strong(number: Any) -> Any:
    """Return a Python number as a scalar of NumPy 1's default type."""
    if type(number) is float:
        return np.float64(number)
    if type(number) is complex:
        return np.complex128(number)
    return np.asarray(number)[()]  # int64, else uint64, else a Python number in an object array


def _beside_array(array: np.dtype, scalar: Any) -> Any:
    """Convert a scalar so that, combined with an array's type, it promotes as in NumPy 1."""
    if array.kind not in _KINDS:
        return scalar
    if isinstance(scalar, np.ndarray | np.generic):
        if scalar.dtype == array or scalar.dtype.kind not in _KINDS:
            return scalar
    elif _fits_plainly(scalar, array):
        return scalar
    dtype = result_dtype(array, scalar)
    if dtype.kind not in _KINDS:
        return scalar
    with np.errstate(all="ignore"):
        return np.asarray(scalar).astype(dtype)


_INT_LIMITS = {
    **{np.dtype(code): (int(np.iinfo(code).min), int(np.iinfo(code).max)) for code in np.typecodes["AllInteger"]},
    # Integers outside these ranges promote a small floating type to a larger one.
    **{np.dtype(code): (-(2**7), 2**8 - 1) for code in "e"},
    **{np.dtype(code): (-(2**15), 2**16 - 1) for code in "fF"},
    **{np.dtype(code): (-(2**63), 2**63 - 1) for code in "?dDgG"},
}
_FLOAT_LIMITS = {np.dtype("e"): 65000.0, np.dtype("f"): 3.4e38, np.dtype("F"): 3.4e38}


def _fits_plainly(number: Any, array: np.dtype) -> bool:
    """Return whether NumPy 2 promotes a Python number and an array to the same type as NumPy 1 did."""
    if type(number) is int:
        limits = _INT_LIMITS.get(array)
        return limits is None or limits[0] <= number <= limits[1]
    limit = _FLOAT_LIMITS.get(array)
    if limit is None:
        return True
    parts = (number.real, number.imag)
    # Every floating type has infinities and nan.
    return all(-limit < part < limit or not math.isfinite(part) for part in parts)


def _promoting(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:

    def apply(a: Any, b: Any) -> Any:
        role_a = _role(type(a))
        if role_a is None:
            return function(a, b)
        role_b = _role(type(b))
        if role_b is None or role_a is role_b is PYTHON_NUMBER:
            return function(a, b)
        return function(*convert(a, b))

    apply.__name__ = apply.__qualname__ = f"promoting_{function.__name__}"
    return apply


#: Exponents for which NumPy 1 kept the type of a 0-d array, because it did not call power.
_KEEPING_EXPONENTS = (-1, 0, 1, 2, 0.5)


def _power(a: Any, b: Any) -> Any:
    if type(a) is np.ndarray and not a.ndim and a.dtype.kind in "fc" and type(b) in (int, float):
        return a**b if b in _KEEPING_EXPONENTS else operator.pow(*convert(a, b))
    return _converting_power(a, b)


_converting_power = _promoting(operator.pow)

#: Maps the names of operators in the syntax tree (``ast.Add``) to their names in `operator`.
_NAMES = dict(
    word.split("=")
    for word in (
        *("Add=add", "Sub=sub", "Mult=mul", "Div=truediv", "FloorDiv=floordiv", "Mod=mod", "Pow=pow"),
        *("LShift=lshift", "RShift=rshift", "BitOr=or_", "BitXor=xor", "BitAnd=and_"),
    )
)
_COMPARISONS = {"Eq": "eq", "NotEq": "ne", "Lt": "lt", "LtE": "le", "Gt": "gt", "GtE": "ge"}

#: Maps an operator's name in the syntax tree to its function; names of in-place operators begin with I.
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: _promoting(getattr(operator, own)) for name, own in {**_NAMES, **_COMPARISONS}.items()},
    **{f"I{name}": _promoting(getattr(operator, "i" + own.strip("_"))) for name, own in _NAMES.items()},
}
OPERATORS["Pow"] = _power


def call_ufunc(ufunc: Callable[..., Any], a: Any, b: Any, *rest: Any, **options: Any) -> Any:
    """Call a binary NumPy function with the result type of NumPy 1."""
    if isinstance(a, _PYTHON_TYPES) and isinstance(b, _PYTHON_TYPES):
        return ufunc(_strong(a), _strong(b), *rest, **options)
    return ufunc(*convert(a, b), *rest, **options)


def result_type(operands: Iterable[Any]) -> np.dtype:
    """Return NumPy 1's result type for arrays, scalars and types; types count as arrays."""
    arrays, scalars = [], []
    for operand in operands:
        if isinstance(operand, bool | int | float | complex | np.generic) or (
            isinstance(operand, np.ndarray) and not operand.ndim
        ):
            scalars.append(operand)
        else:
            arrays.append(operand.dtype if isinstance(operand, np.ndarray) else np.dtype(operand))
    if not arrays:
        return np.result_type(*(np.asarray(scalar).dtype for scalar in scalars))
    result = np.result_type(*arrays)
    if result.kind not in _KINDS:
        return np.result_type(result, *(np.asarray(scalar).dtype for scalar in scalars))
    values = [np.asarray(scalar) for scalar in scalars]
    if any(value.dtype.kind not in _KINDS or _KINDS[value.dtype.kind] > _KINDS[result.kind] for value in values):
        return np.result_type(result, *(value.dtype for value in values))
    for value in values:
        result = np.promote_types(result, _smallest(value, result))
    return result


def can_cast_value(value: Any, dtype: np.dtype, casting: Casting = "safe") -> bool:
    """Return whether a scalar's value can be cast according to NumPy 1's rules."""
    array = np.asarray(value)
    if array.dtype.kind not in _KINDS or dtype.kind not in _KINDS:
        return bool(np.can_cast(array.dtype, dtype, casting))
    return bool(np.can_cast(_smallest(array, dtype), dtype, casting))

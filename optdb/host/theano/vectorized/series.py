"""Digamma and trigamma on whole arrays, with the same series and values as Theano's C code.

The series are from J. M. Bernardo, "Algorithm AS 103: Psi (Digamma) Function", Applied Statistics 25 (1976), and B. E.
Schneider, "Algorithm AS 121: Trigamma Function", Applied Statistics 27 (1978).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

#: For arguments up to the limit ``SMALL``, the first terms of the series at zero suffice. Larger arguments are
#: increased in steps of 1 until they reach the limit ``LARGE``.
_DIGAMMA_SMALL, _DIGAMMA_LARGE = 1e-5, 8.5
_TRIGAMMA_SMALL, _TRIGAMMA_LARGE = 1e-4, 5.0
#: Digamma of 1 and Stirling's coefficients, with the precision of the C code.
_DIGAMMA_OF_ONE = -0.5772156649
_DIGAMMA_COEFFICIENTS = (8.333333333e-2, 8.333333333e-3, 3.968253968e-3)
_TRIGAMMA_COEFFICIENTS = (0.1666666667, -0.03333333333, 0.02380952381, -0.03333333333)


#: Arrays of up to this size are processed element by element, since each NumPy call on a whole array takes as long as
#: computing one element.
_FEW = 32


def digamma(special: ModuleType, x: Any) -> Any:
    """Return the derivative of the logarithm of gamma; `special` is `scipy.special`, `x` is float64."""
    positive = x > 0
    if not np.all(positive):
        return np.where(positive, digamma(special, np.where(positive, x, 1.0)), special.psi(x))
    if np.size(x) <= _FEW:
        return _one_by_one(_digamma_of_number, x)
    y, total = x, np.zeros(np.shape(x))
    while (below := y < _DIGAMMA_LARGE).any():
        total = np.where(below, total - 1 / y, total)
        y = np.where(below, y + 1, y)
    return np.where(x <= _DIGAMMA_SMALL, _DIGAMMA_OF_ONE - 1 / x, _digamma_beyond(y, total, np.log))


def trigamma(special: ModuleType, x: Any) -> Any:
    """Return the second derivative of the logarithm of gamma; the parameters are the same as for `digamma`."""
    positive = x > 0
    if not np.all(positive):
        return np.where(positive, trigamma(special, np.where(positive, x, 1.0)), special.polygamma(1, x))
    if np.size(x) <= _FEW:
        return _one_by_one(_trigamma_of_number, x)
    z, total = x, np.zeros(np.shape(x))
    while (below := z < _TRIGAMMA_LARGE).any():
        total = np.where(below, total + 1 / z / z, total)
        z = np.where(below, z + 1, z)
    return np.where(x <= _TRIGAMMA_SMALL, 1 / x / x, _trigamma_beyond(z, total))


def _one_by_one(function: Callable[[float], float], x: Any) -> np.ndarray:
    numbers = np.asarray(x)
    return np.array([function(number) for number in numbers.ravel().tolist()]).reshape(numbers.shape)


def _digamma_of_number(x: float) -> float:
    if x <= _DIGAMMA_SMALL:
        return _DIGAMMA_OF_ONE - 1 / x
    total = 0.0
    while x < _DIGAMMA_LARGE:
        total -= 1 / x
        x += 1
    return _digamma_beyond(x, total, math.log)


def _trigamma_of_number(x: float) -> float:
    if x <= _TRIGAMMA_SMALL:
        # Use a NumPy number, because the square of 1 / x may be infinite.
        return float(1 / np.float64(x) / x)
    total = 0.0
    while x < _TRIGAMMA_LARGE:
        total += 1 / x / x
        x += 1
    return _trigamma_beyond(x, total)


def _digamma_beyond(y: Any, total: Any, log: Callable[[Any], Any]) -> Any:
    """Add the asymptotic series for large numbers to an array."""
    r = 1 / y
    total = total + log(y) - 0.5 * r
    r = r * r
    a, b, c = _DIGAMMA_COEFFICIENTS
    return total - r * (a - r * (b - r * c))


def _trigamma_beyond(z: Any, total: Any) -> Any:
    y = 1 / z / z
    a, b, c, d = _TRIGAMMA_COEFFICIENTS
    return total + (0.5 * y + (1 + y * (a + y * (b + y * (c + y * d)))) / z)

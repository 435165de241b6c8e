"""Digamma and trigamma of whole arrays, by the series of Theano's C code.

A function that changes over from NumPy to C goes on with the same values then. The series have fewer digits than
SciPy's functions. Where an argument is not positive, C returns 0; SciPy's values stay there.

The series are those of J. M. Bernardo, "Algorithm AS 103: Psi (Digamma) Function", Applied Statistics 25 (1976), and of
B. E. Schneider, "Algorithm AS 121: Trigamma Function", Applied Statistics 27 (1978).
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

__all__ = ["digamma", "trigamma"]

#: Arguments up to the first number take the first term of the expansion at zero; those below the second are shifted.
_DIGAMMA_SMALL, _DIGAMMA_LARGE = 1e-5, 8.5
_TRIGAMMA_SMALL, _TRIGAMMA_LARGE = 1e-4, 5.0
#: Digamma of 1, and Stirling's coefficients, with the digits that C has.
_DIGAMMA_OF_ONE = -0.5772156649
_DIGAMMA_COEFFICIENTS = (8.333333333e-2, 8.333333333e-3, 3.968253968e-3)
_TRIGAMMA_COEFFICIENTS = (0.1666666667, -0.03333333333, 0.02380952381, -0.03333333333)


def digamma(special: ModuleType, x: np.ndarray) -> np.ndarray:
    """Return the derivative of the logarithm of gamma; `special` is `scipy.special`, `x` is float64."""
    positive = x > 0
    y = np.where(positive, x, _DIGAMMA_LARGE)
    total = np.zeros_like(y)
    while (below := y < _DIGAMMA_LARGE).any():
        total = np.where(below, total - 1 / y, total)
        y = np.where(below, y + 1, y)
    r = 1 / y
    total = total + np.log(y) - 0.5 * r
    r = r * r
    a, b, c = _DIGAMMA_COEFFICIENTS
    total = total - r * (a - r * (b - r * c))
    small = positive & (x <= _DIGAMMA_SMALL)
    if small.any():
        total = np.where(small, _DIGAMMA_OF_ONE - 1 / np.where(small, x, 1), total)
    return total if positive.all() else np.where(positive, total, special.psi(x))


def trigamma(special: ModuleType, x: np.ndarray) -> np.ndarray:
    """Return the second derivative of the logarithm of gamma; parameters are those of `digamma`."""
    positive = x > 0
    z = np.where(positive, x, _TRIGAMMA_LARGE)
    total = np.zeros_like(z)
    while (below := z < _TRIGAMMA_LARGE).any():
        total = np.where(below, total + 1 / z / z, total)
        z = np.where(below, z + 1, z)
    y = 1 / z / z
    a, b, c, d = _TRIGAMMA_COEFFICIENTS
    total = total + (0.5 * y + (1 + y * (a + y * (b + y * (c + y * d)))) / z)
    small = positive & (x <= _TRIGAMMA_SMALL)
    if small.any():
        total = np.where(small, 1 / np.where(small, x, 1) / np.where(small, x, 1), total)
    return total if positive.all() else np.where(positive, total, special.polygamma(1, x))

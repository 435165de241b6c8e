"""Formulas for random variables; each formula computes an element from one uniform random number.

PyTensor itself uses the formulas in `FORMULAS`, and rejection sampling for the distributions in `OTHER_FORMULAS`.

References
----------
M. J. Wichura, Algorithm AS 241: The Percentage Points of the Normal Distribution, Journal of the Royal Statistical
Society C 37 (3), 1988.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.tensor.random import basic

from optdb.device.expressions import applied
from optdb.device.tensors import Constant, Tensor
from optdb.numpy_types import HostArray

#: Random integers are computed from 52-bit random numbers.
_LARGEST_RANGE = 2.0**52
#: Quotients of polynomials for the normal quantile: one for u near 0.5, and one for all other u. AS 241 has a third
#: quotient for u below 1e-11, where the second quotient is still accurate to 5e-13.
_CENTRAL = (
    (
        *(3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4),
        *(4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    ),
    (
        *(1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3),
        *(2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
    ),
)
_TAIL = (
    (
        *(1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0),
        *(1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    ),
    (
        *(1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1),
        *(1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
    ),
)


class Term:
    """A tensor in a formula, with Python's operators. All numbers in a formula have the same floating-point dtype."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.dtype = tensor.dtype

    def _applied(self, scalar: str, *others: Term | float, dtype: str = "") -> Term:
        operands = [x.tensor if isinstance(x, Term) else Constant(np.asarray(x, self.dtype)) for x in others]
        return Term(applied(scalar, dtype or self.dtype, self.tensor, *operands))

    __add__ = functools.partialmethod(_applied, "Add")
    __sub__ = functools.partialmethod(_applied, "Sub")
    __mul__ = functools.partialmethod(_applied, "Mul")
    __truediv__ = functools.partialmethod(_applied, "TrueDiv")
    __pow__ = functools.partialmethod(_applied, "Pow")
    __neg__ = functools.partialmethod(_applied, "Neg")
    __abs__ = functools.partialmethod(_applied, "Abs")
    __invert__ = functools.partialmethod(_applied, "Invert")
    __lt__ = functools.partialmethod(_applied, "LT", dtype="bool")
    __le__ = functools.partialmethod(_applied, "LE", dtype="bool")

    def __rsub__(self, other: float) -> Term:
        return Term(Constant(np.asarray(other, self.dtype))) - self

    def __rtruediv__(self, other: float) -> Term:
        return Term(Constant(np.asarray(other, self.dtype))) / self

    def choose(self, yes: Term, no: Term) -> Term:
        """Return `yes` where this condition holds, and `no` elsewhere."""
        return self._applied("Switch", yes, no, dtype=yes.dtype)


def _function(scalar: str) -> Callable[[Term], Term]:
    return lambda x: Term(applied(scalar, x.dtype, x.tensor))


_exp, _floor, _log, _log1p, _sqrt, _tan = map(_function, ("Exp", "Floor", "Log", "Log1p", "Sqrt", "Tan"))


@dataclass(frozen=True)
class Formula:
    """A distribution's formula, which maps uniform random numbers and parameters to draws."""

    #: Computes the draws from uniform random numbers, one for each draw, and the parameters; all of these are `Term`
    #: objects.
    draw: Callable[..., Term]
    #: Takes the parameters as arrays, and returns an array that is true where they are valid.
    is_valid: Callable[..., HostArray]
    #: Whether PyTensor's default linker raises an error if parameters are not valid.
    is_checked: bool = False


def _triangular(u: Term, left: Term, mode: Term, right: Term) -> Term:
    base = right - left
    rising = left + _sqrt(u * ((mode - left) * base))
    falling = right - _sqrt((1.0 - u) * ((right - mode) * base))
    return (u <= (mode - left) / base).choose(rising, falling)


def _normal(u: Term, loc: Term, scale: Term) -> Term:
    return loc + scale * normal_quantile(u)


def normal_quantile(u: Term) -> Term:
    """Return the quantiles of the normal distribution, with a relative error of 5e-13 down to u = 2^-53."""
    q = u - 0.5
    r = 0.180625 - q * q
    central = q * (_polynomial(r, _CENTRAL[0]) / _polynomial(r, _CENTRAL[1]))
    t = _sqrt(-_log((u < 0.5).choose(u, 1.0 - u))) - 1.6
    tail = _polynomial(t, _TAIL[0]) / _polynomial(t, _TAIL[1])
    return (abs(q) <= 0.425).choose(central, (q < 0.0).choose(-tail, tail))


def _polynomial(x: Term, coefficients: Sequence[float]) -> Term:
    """Return the polynomial whose coefficients are given in ascending order, from the constant term."""
    result = x * coefficients[-1] + coefficients[-2]
    for coefficient in coefficients[-3::-1]:
        result = result * x + coefficient
    return result


def _has_scale(*parameters: HostArray) -> HostArray:
    return np.asarray(parameters[-1] >= 0)


#: Formulas that PyTensor itself uses, with one uniform number for each element. For laplace and
#: logistic, PyTensor replaces a uniform number that is 0. PyTensor uses the formula for bernoulli only with numba.
FORMULAS: dict[Any, Formula] = {
    basic.UniformRV: Formula(
        lambda u, low, high: low + (high - low) * u, lambda low, high: np.isfinite(high - low) & (high >= low)
    ),
    basic.TriangularRV: Formula(_triangular, lambda a, m, b: (a <= m) & (m <= b) & (a < b)),
    basic.LaplaceRV: Formula(
        lambda u, loc, scale: (u < 0.5).choose(loc + scale * _log(u + u), loc - scale * _log(2.0 - u - u)), _has_scale
    ),
    basic.LogisticRV: Formula(lambda u, loc, scale: loc + scale * _log(u / (1.0 - u)), _has_scale),
    basic.ParetoRV: Formula(
        lambda u, b, scale: (1.0 - u) ** (-1.0 / b) * scale, lambda b, scale: (b > 0) & (scale >= 0)
    ),
    basic.HalfCauchyRV: Formula(
        lambda u, loc, scale: _tan(u * (math.pi / 2)) * scale + loc, _has_scale, is_checked=True
    ),
    basic.BernoulliRV: Formula(lambda u, p: ~(p < u), lambda p: (p >= 0) & (p <= 1)),
}

#: Formulas for distributions for which PyTensor uses rejection sampling. These formulas take random numbers in the open
#: interval (0, 1).
OTHER_FORMULAS: dict[Any, Formula] = {
    basic.NormalRV: Formula(_normal, _has_scale),
    basic.HalfNormalRV: Formula(lambda u, loc, scale: loc + abs(normal_quantile(u)) * scale, _has_scale),
    basic.LogNormalRV: Formula(lambda *terms: _exp(_normal(*terms)), _has_scale),
    basic.ExponentialRV: Formula(lambda u, scale: -_log(u) * scale, _has_scale),
    basic.CauchyRV: Formula(lambda u, loc, scale: loc + scale * _tan((u - 0.5) * math.pi), _has_scale),
    basic.GumbelRV: Formula(lambda u, loc, scale: loc - scale * _log(-_log(u)), _has_scale),
    basic.WeibullRV: Formula(lambda u, shape: (-_log(u)) ** (1.0 / shape), lambda shape: shape > 0),
    basic.GeometricRV: Formula(lambda u, p: _floor(_log(u) / _log1p(-p)) + 1.0, lambda p: (p > 0) & (p <= 1)),
    basic.IntegersRV: Formula(
        lambda u, low, high: low + _floor((high - low) * u),
        lambda low, high: (low < high) & (high - low <= _LARGEST_RANGE),
    ),
}

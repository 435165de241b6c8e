"""Special functions in OpenCL C agree with SciPy, or with known values where SciPy is inaccurate."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.special
import scipy.stats

from optdb.codegen.scalars.code import computed_dtypes, scalar_code
from tests.codegen.scalars.device_results import device_results, of_scalar, with_poles

ENDS = [np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, -2.0, 1.0, 2.0, -1.5, 0.5, 1e-30, -1e-30, 1e30]
RNG = np.random.default_rng(0)


def spread(low, high, n=200):
    """Return numbers of all magnitudes."""
    return 10 ** RNG.uniform(low, high, n)


BOTH_SIGNS = np.concatenate([ENDS, spread(-9, 6), -spread(-9, 3), RNG.uniform(-30, 30, 400)])
NEAR_ONE = np.concatenate([ENDS, RNG.uniform(-1, 1, 200), 1 - spread(-7, -1), spread(-30, 0)])
NOT_FAR = np.concatenate([[e for e in ENDS if abs(e) < 1e20 or np.isnan(e)], RNG.uniform(-85, 85, 800)])


def where_defined(function):
    """Wrap a function so that it returns NaN for NaN, as SciPy's functions do since version 1.15."""
    return lambda k, x: np.where(np.isnan(k) | np.isnan(x), np.nan, function(k, x))


def gamma(x):
    """Return the gamma function of `x`, with the device's values at the poles."""
    return with_poles(scipy.special.gamma(x), x)


gammainc, gammaincc = where_defined(scipy.special.gammainc), where_defined(scipy.special.gammaincc)


def tri_gamma(x):
    return scipy.special.polygamma(1, x)


#: Each case has a name, SciPy's function, and arguments. For functions with zeros, the last number is an absolute
#: tolerance.
UNARY = [
    ("Psi", scipy.special.psi, BOTH_SIGNS, 2e-6),
    ("TriGamma", tri_gamma, BOTH_SIGNS, 0),
    ("Erfcx", scipy.special.erfcx, np.concatenate([BOTH_SIGNS, RNG.uniform(-8, 8, 200)]), 0),
    ("Erfinv", scipy.special.erfinv, NEAR_ONE, 0),
    ("Erfcinv", scipy.special.erfcinv, np.concatenate([NEAR_ONE, RNG.uniform(0, 2, 200), 2 - spread(-7, 0)]), 1e-7),
    ("J0", scipy.special.j0, NOT_FAR, 1e-6),
    ("J1", scipy.special.j1, NOT_FAR, 1e-6),
    ("I0", scipy.special.i0, NOT_FAR, 0),
    ("I1", scipy.special.i1, NOT_FAR, 0),
    ("I0e", scipy.special.i0e, BOTH_SIGNS, 0),
    ("I1e", scipy.special.i1e, BOTH_SIGNS, 0),
]


def grid(*ends):
    """Return all pairs of the given numbers, as two arrays."""
    return [values.ravel() for values in np.meshgrid(ends, ends)]


_SHAPES = np.concatenate([spread(-6, 4.9, 600), spread(-3, 2, 300), RNG.uniform(0, 40, 300)])
_AT = np.concatenate([_SHAPES[:600] * (1 + RNG.normal(0, 1, 600) / np.sqrt(_SHAPES[:600] + 10)),
                      spread(-6, 2.5, 300), RNG.uniform(0, 40, 300)])  # fmt: skip
_A, _X = (np.concatenate(pair) for pair in zip([_SHAPES, abs(_AT)], grid(*ENDS[:6], *ENDS[7:10], 3e-5, 170.5)))

#: Bessel functions: integer orders with arguments of both signs, other orders with positive arguments, poles, zeros and
#: the ends of ranges.
_ORDERS = [RNG.integers(-20, 20, 300), RNG.uniform(0, 60, 600), RNG.uniform(-3, 0, 100), grid(0, 1, -2, np.nan)[0]]
_ANGLES = [RNG.uniform(-60, 60, 300), RNG.uniform(0, 80, 500), spread(-3, 2.5, 100), RNG.uniform(1, 30, 100)]
_ORDERS, _ANGLES = map(np.concatenate, (_ORDERS, [*_ANGLES, grid(0, -0.0, np.inf, np.nan)[1]]))

BINARY = [
    ("GammaInc", gammainc, (_A, _X)),
    ("GammaIncC", gammaincc, (_A, _X)),
    ("GammaU", lambda k, x: gammaincc(k, x) * gamma(k), (_A[_A < 160], _X[_A < 160])),
    ("GammaL", lambda k, x: gammainc(k, x) * gamma(k), (_A[_A < 160], _X[_A < 160])),
    ("Chi2SF", scipy.stats.chi2.sf, (2 * _X, 2 * _A)),
    ("Jv", scipy.special.jv, (_ORDERS, _ANGLES), 1e-5),
    ("Iv", scipy.special.iv, (_ORDERS, _ANGLES), 1e-5),
    ("Ive", scipy.special.ive, (_ORDERS, _ANGLES), 1e-5),
    ("Ive", scipy.special.ive, (RNG.uniform(0, 900, 400), spread(-3, 6, 400)), 1e-30),
]

CASES = [(*case[:2], (case[2],) if isinstance(case[2], np.ndarray) else case[2], *case[3:]) for case in UNARY + BINARY]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_as_scipy_has_them(dtype):
    longest = max(len(arrays[0]) for _, _, arrays, *_ in CASES)
    given = [[np.resize(x, longest).astype(dtype) for x in arrays] for _, _, arrays, *_ in CASES]
    cases = [(of_scalar(name, arrays), arrays) for (name, *_), arrays in zip(CASES, given, strict=True)]
    wrong = []
    for (name, function, _, *loose), (_, arrays), got in zip(CASES, cases, device_results(cases), strict=True):
        with np.errstate(all="ignore"):
            want = np.asarray(function(*[x.astype("float64") for x in arrays])).astype(got.dtype)
        wide = dtype == "float64"
        atol = (loose[0] * 1e-7 if wide else loose[0]) if loose else np.finfo(got.dtype).tiny
        try:
            np.testing.assert_allclose(got, want, rtol=1e-10 if wide else 1e-5, atol=atol, err_msg=name)
        except AssertionError as error:
            wrong.append(str(error))
    assert not wrong, "\n".join(wrong)


def test_digits_are_kept_where_scipy_loses_them():
    """The values in `known` were computed with 40 digits; digamma's zero is given with more digits than float64 has."""
    a = np.array([8142807.813692313, 5353602.003547961, 9132415.962878631])
    x = np.array([8128763.598928966, 5342720.747711325, 9115080.674324416])
    zero = np.array([1.4616321449683622, 1.4616321449683625, 1.46])
    cases = [("GammaInc", [a, x]), ("Psi", [zero]), ("I0", [np.array([712.0, 800, 20])])]
    cases.append(("I0", [np.array([1.7e308, -1.7e308, 9e307])]))
    lower, psi, i0, largest = device_results([(of_scalar(name, arrays), arrays) for name, arrays in cases])
    known = [4.2318123738695487e-7, 1.2641129883468208e-6, 4.7364122329237949e-9]
    np.testing.assert_allclose(lower, known, rtol=1e-11)
    away = [float(Fraction(value) - Fraction("1.46163214496836234126265954")) for value in zero[:2]]
    np.testing.assert_allclose(psi[:2], 0.9676722454476214 * np.array(away), rtol=1e-5)
    np.testing.assert_allclose(i0, [scipy.special.i0e(712.0) * np.exp(709.0) * np.exp(3), np.inf, scipy.special.i0(20)])
    np.testing.assert_array_equal(largest, np.inf)


def test_only_incomplete_gamma_functions_ask_for_double_precision():
    x = [np.zeros(1, "float32")]
    for name in ("Psi", "TriGamma", "Erfinv", "Erfcinv", "Erfcx", "J0", "J1", "I0", "I0e", "I1"):
        code = scalar_code(of_scalar(name, x), ["x"], ["z"])
        assert code.dtypes == {"float32"} and "double" not in code.helpers
    assert all("float64" in computed_dtypes(of_scalar(name, x * 2)) for name in ("GammaInc", "Jv"))

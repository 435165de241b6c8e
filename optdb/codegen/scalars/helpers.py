"""OpenCL C functions for scalar ops that need more than an expression, from the .cl files of this package.

The functions' placeholders are ``T`` (the computed type), ``U`` (the unsigned type in which overflow is defined),
``EPSILON``, ``TINY`` (a number close to zero), and the names of called functions; for complex functions, see
``complexes.cl``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from optdb.codegen.source import filled, functions

#: The Bernoulli numbers B_2, B_4, ..., B_14.
_BERNOULLI = [Fraction(*pair) for pair in ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6))]

#: Maps the `NAME` in ``POLYNOMIAL(x, NAME)`` to the coefficients of the polynomial.
_COEFFICIENTS: dict[str, Sequence[float | Fraction]] = {
    "PSI": [b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)],
    "TRI_GAMMA": _BERNOULLI,
    "STIRLING": [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)],
    "LOG_LESS": [Fraction(1, 2 * k + 3) for k in range(13)],
    # The values of the Hurwitz zeta function at 2, 3, ..., with alternating signs; the second argument of the function
    # is the zero of digamma.
    "PSI_AT_ZERO": [
        *(0.9676722454476214, -0.44276316898359214, 0.2584997609556512, -0.16394270544240658, 0.10782405069126239),
        *(-0.07219956125645476, 0.048804288164143145, -0.033161126474847376, 0.022597648232218125),
        *(-0.015424765904948968, 0.010538791616612182, -0.007204534386356875, 0.004926781395729858),
        *(-0.0033698016554393317, 0.00230512632673493, -0.0015769367714301987, 0.0010788252019162975),
        *(-0.000738070938996006, 0.0005049532658346026, -0.0003454680251063082, 0.00023635601564027086),
        *(-0.00016170622091974825, 0.00011063372768747429),
    ],
    # (zeta(k) - 1) / k for k = 2, 3, ..., with alternating signs.
    "LN_GAMMA_NEAR_1": [
        *(0.3224670334241132, -0.0673523010531981, 0.020580808427784546, -0.007385551028673986, 0.0028905103307415234),
        *(-0.001192753911703261, 0.0005096695247430425, -0.00022315475845357936, 9.945751278180853e-05),
        *(-4.492623673813314e-05, 2.0507212775670694e-05, -9.439488275268395e-06, 4.374866789907487e-06),
        *(-2.039215753801366e-06, 9.55141213040742e-07, -4.492469198764566e-07, 2.1207184805554667e-07),
        *(-1.00432248239681e-07, 4.769810169363981e-08, -2.2711094608943164e-08, 1.0838659214896955e-08),
        *(-5.183475041970047e-09, 2.4836745438024785e-09, -1.1921401405860912e-09, 5.731367241678862e-10),
    ],
    # The first two functions of Temme's expansion, DLMF 8.12.11, as power series about 0.
    "TEMME_0": [
        *(Fraction(-1, 3), Fraction(1, 12), Fraction(-2, 135), Fraction(1, 864), Fraction(1, 2835)),
        *(Fraction(-139, 777600), Fraction(1, 25515), Fraction(-571, 261273600)),
    ],
    "TEMME_1": [Fraction(-1, 540), Fraction(-1, 288), Fraction(1, 378), Fraction(-77, 77760)],
}

_NUMBERS = {
    "float": {"EPSILON": "FLT_EPSILON", "TINY": "1e-30f"},
    "double": {"EPSILON": "DBL_EPSILON", "TINY": "1e-300"},
    "float2": {"R": "float", "LARGE": "88.0f", "HUGE": "8.0e37f", "SMALL": "1e-24f"},
    "double2": {"R": "double", "LARGE": "709.0", "HUGE": "4.0e307", "SMALL": "1e-276"},
}


def _polynomial(asked: re.Match[str]) -> str:
    """Return the code of ``c[0] + c[1] * x + c[2] * x ** 2 + ...`` by Horner's rule, in parentheses."""
    *others, text = [f"(T){float(coefficient)!r}" for coefficient in _COEFFICIENTS[asked["name"]]]
    for coefficient in reversed(others):
        text = f"{coefficient} + {asked['x']} * ({text})"
    return f"({text})"


_FUNCTIONS = {
    name: re.sub(r"POLYNOMIAL\((?P<x>\w+), (?P<name>\w+)\)", _polynomial, code)
    for file in ("arithmetic", "bessel", "complexes", "errors", "gamma")
    for name, code in functions(f"scalars/{file}.cl").items()
}
_TURNED = _FUNCTIONS.pop("TURNED")
for _name, _other in (("asinh", "asin"), ("atan", "atanh"), ("sin", "sinh"), ("tan", "tanh")):
    _FUNCTIONS[f"complex_{_name}"] = filled(_TURNED, TURNED=f"complex_{_name}", OTHER=f"complex_{_other}")


class Helpers:
    """The helper functions that a program calls; names have a prefix that is unique among a node's kernels."""

    def __init__(self, prefix: str = "optdb") -> None:
        self._prefix = prefix
        self._sources: dict[str, str] = {}

    def get(self, kind: str, name: str, unsigned: str = "uint") -> str:
        """Add the function `kind` for the C type `name`, and return the function's name.

        `unsigned` is the C type in which overflow is defined.
        """
        called = f"{self._prefix}_{kind}_{name}"
        if called not in self._sources:
            code = _FUNCTIONS[kind]
            words = {"T": name, "U": unsigned, kind: called, **_NUMBERS.get(name, {})}
            others = dict.fromkeys(word for word in re.findall(r"\w+", code) if word in _FUNCTIONS and word != kind)
            words |= {other: self.get(other, name, unsigned) for other in others}
            self._sources[called] = filled(code, **words)
        return called

    @property
    def source(self) -> str:
        """Return the OpenCL C of all functions."""
        return "".join(self._sources.values())

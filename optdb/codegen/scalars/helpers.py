"""OpenCL C functions for scalar ops that need more than an expression, from the .cl files of this package.

The functions' placeholders are ``T`` (the computed type), ``U`` (the unsigned type in which overflow is defined),
``EPSILON``, ``TINY`` (a number close to zero), ``SPLIT`` (a product with it splits a number into two halves), and the
names of called functions; for complex functions, see ``complexes.cl``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
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
    # The following polynomials of vectors.cl equal functions at Chebyshev nodes; they were computed with 40 digits.
    # x (lgamma(x) - (x - 1/2) log(x) + x - log(2 pi) / 2) for x from 5.125 on, in 1 / x^2.
    "STIRLING_FROM_5": [
        *(0.08333333333333312, -0.002777777777231437, 0.000793650561693534, -0.0005952007851864484),
        *(0.0008388470319200654, -0.0017978998036944237, 0.0037773905725022794),
    ],
    # lgamma(z) / ((z - 1) (z - 2)) for z from 1.125 to 2.125, in z - 1.625.
    "LN_GAMMA_OF_1_TO_2": [
        *(0.46580963736232694, -0.13157899128683392, 0.052579426220437, -0.024194436430702362, 0.011991915956587372),
        *(-0.006215450413290813, 0.00331727088043464, -0.0018070640374553781, 0.0009992722155629738),
        *(-0.0005589492899863373, 0.0003155023498227249, -0.0001793956425495648, 0.0001025551733099112),
        *(-5.897232580696619e-05, 3.447648700962197e-05, -1.999445923167274e-05, 1.0224533139127891e-05),
        *(-5.958744664255039e-06, 6.13740827267062e-06, -3.6067810760448672e-06),
    ],
    # psi(z) / (z - zero) for z from 1.125 to 2.125, in z - 1.625.
    "PSI_OF_1_TO_2": [
        *(0.9015925158282158, -0.3697749644574109, 0.19272012460146062, -0.10919698588595995, 0.06426251743387486),
        *(-0.03855782679621636, 0.0233804399185006, -0.014262521327859433, 0.0087308682738977, -0.005355731196118552),
        *(0.0032894197043522506, -0.0020218489150634336, 0.0012434317326003661, -0.0007648443528034739),
        *(0.00046959539868359667, -0.0002889321879802491, 0.00018233326547885306, -0.00011219791013605335),
        *(5.548823143533139e-05, -3.414558646496439e-05, 4.383991201270367e-05, -2.69782231420591e-05),
    ],
    # x^2 (log(x) - 1 / (2 x) - psi(x)) for x from 5.125 on, in 1 / x^2.
    "PSI_FROM_5": [
        *(0.08333333333333319, -0.008333333332850686, 0.003968253699192476, -0.004166608944512614),
        *(0.007569588044764206, -0.02072594213605209, 0.07065818646300566, -0.18734577923943208),
    ],
    # erf(x) / x for |x| up to 1, in x^2.
    "ERF": [
        *(1.1283791670955126, -0.3761263890318375, 0.11283791670954879, -0.026866170645076792, 0.0052239776248180145),
        *(-0.000854832698083379, 0.0001205533111164271, -1.4925595266831182e-05, 1.6461000484121368e-06),
        *(-1.6350312701054695e-07, 1.4659775274047436e-08, -1.1372848856791674e-09, 5.957176147748911e-11),
    ],
    # (x + 1/2) erfcx(x) for x >= 0, in (x - 3.75) / (x + 3.75).
    "ERFCX": [
        *(0.6187563154189137, -0.07012029929277351, 0.0017927077427322292, 0.041138369245075544),
        *(-0.054401965070875115, 0.04615216058009819, -0.02934669929480558, 0.01418113871077199),
        *(-0.004873289779137576, 0.0008778129160957678, 0.00014685683349230654, -0.0001450769890689192),
        *(2.5824546942910852e-05, 1.119195413830019e-05, -5.722067194829238e-06, -4.864206725907539e-07),
        *(8.758094703471839e-07, -2.9137509313843457e-08, -1.293244955359161e-07, 1.2150919742251542e-08),
        *(1.933121033141896e-08, -2.198460958381453e-09, -2.584540322407966e-09, 2.7425422600418125e-10),
        *(2.1216519125548378e-10, -1.8990323617950142e-11),
    ],
    # erfinv(x) / x for w = -log(1 - x^2) up to 5, in w - 2.5.
    "ERFINV_CENTRE": [
        *(1.501409351110792, 0.246640276744167, -0.004177317724382887, -0.0012527079078109066),
        *(0.00021825026433935945, -4.996079599279791e-06, -3.416619584862394e-06, 4.78725219198754e-07),
        *(1.3416788811913557e-08, -1.0861169521763927e-08, 9.073147838739175e-10, 1.1960729171935375e-10),
        *(-3.110795974484731e-11, 9.114669783363668e-13, 5.3717803411669e-13, -7.610626530191807e-14),
        *(-3.177077584174987e-15, 1.8941456297431503e-15, -1.0138086192836234e-16, -2.6645648809770092e-17),
        *(2.538203868845463e-18, 1.64533799430872e-19),
    ],
    # erfinv(x) / sqrt(w) for w from 5 to 756, in 1 / sqrt(w), with a relative error of 3e-8.
    "ERFINV_TAIL": [
        *(1.0000734375606397, -0.01314137841031437, -1.6028661479545045, 10.715880542806218, -73.19747247185303),
        *(446.3798991329239, -2117.8433101295723, 7507.621256159984, -19388.67169433261, 35278.81839849134),
        *(-42734.28693364288, 30849.342261850525, -10016.279576432582),
    ],
    # (atanh(s) - s) / s^3, in s^2.
    "ATANH": [Fraction(1, 2 * k + 3) for k in range(6)],
    # (exp(s) - 1 - s) / s^2.
    "EXP": [Fraction(1, math.factorial(k + 2)) for k in range(13)],
    # sin(pi r) / (pi r) for |r| up to 1/2, in r^2.
    "SINC": [
        *(1.0, -1.6449340668482264, 0.8117424252833393, -0.19075182412149616, 0.02614784780555096),
        *(-0.0023460808954639607, 0.0001484278414189103, -6.972099660851199e-06, 2.4502943624559793e-07),
    ],
    # The gamma function of z from 1 to 2, in z - 1.5, at Chebyshev nodes.
    "GAMMA_OF_1_TO_2": [
        *(0.886226925452758, 0.032338397448885, 0.4148134536882826, -0.10729480456475984, 0.1446453590475836),
        *(-0.07752305230182892, 0.058610303633145476, -0.03800193543217766, 0.02583761230507782),
        *(-0.017222447013020576, 0.011522407277990318, -0.007690139287816347, 0.005132883760616497),
        *(-0.003423629338262631, 0.002273514062024839, -0.0015159595901781905, 0.0010569633457018935),
        *(-0.0007046879722466143, 0.0003320885800907498, -0.00022139952612051456, 0.00037955491879486174),
        *(-0.00025303807808043895,),
    ],
    # The first two functions of Temme's expansion, DLMF 8.12.11, as power series about 0.
    "TEMME_0": [
        *(Fraction(-1, 3), Fraction(1, 12), Fraction(-2, 135), Fraction(1, 864), Fraction(1, 2835)),
        *(Fraction(-139, 777600), Fraction(1, 25515), Fraction(-571, 261273600)),
    ],
    "TEMME_1": [Fraction(-1, 540), Fraction(-1, 288), Fraction(1, 378), Fraction(-77, 77760)],
}

_NUMBERS = {
    "float": {
        **{"EPSILON": "FLT_EPSILON", "TINY": "1e-30f", "LEAST": "FLT_MIN", "SPLIT": "4097.0f"},
        **{"MANTISSA": "23", "BIAS": "127", "LOG_MAX": "110.0f"},
    },
    "double": {
        **{"EPSILON": "DBL_EPSILON", "TINY": "1e-300", "LEAST": "0x1.0p-1022", "SPLIT": "134217729.0"},
        **{"MANTISSA": "52", "BIAS": "1023", "LOG_MAX": "760.0"},
    },
    "float2": {"R": "float", "LARGE": "88.0f", "HUGE": "8.0e37f", "SMALL": "1e-24f"},
    "double2": {"R": "double", "LARGE": "709.0", "HUGE": "4.0e307", "SMALL": "1e-276"},
}


_POLYNOMIAL = re.compile(r"POLYNOMIAL\((?P<x>\w+), (?P<name>\w+)\)")


def _horner(x: str, coefficients: Sequence[float | Fraction]) -> str:
    """Return the code of ``c[0] + c[1] * x + c[2] * x ** 2 + ...`` by Horner's rule, in parentheses."""
    *others, text = [f"(T){float(coefficient)!r}" for coefficient in coefficients]
    for coefficient in reversed(others):
        text = f"{coefficient} + {x} * ({text})"
    return f"({text})"


def _in_halves(x: str, coefficients: Sequence[float | Fraction]) -> str:
    """Return the code of a polynomial as two polynomials in the square, which CPUs compute at the same time."""
    even, odd = _horner(f"({x} * {x})", coefficients[::2]), _horner(f"({x} * {x})", coefficients[1::2])
    return f"({even} + {x} * {odd})"


def _functions(*files: str, polynomial: Callable[[str, Sequence[float | Fraction]], str] = _horner) -> dict[str, str]:
    return {
        name: _POLYNOMIAL.sub(lambda asked: polynomial(asked["x"], _COEFFICIENTS[asked["name"]]), code)
        for file in files
        for name, code in functions(f"scalars/{file}.cl").items()
    }


_FUNCTIONS = _functions("arithmetic", "bessel", "complexes", "errors", "gamma")
_VECTOR_FUNCTIONS = _functions("vectors", polynomial=_in_halves)
_TURNED = _FUNCTIONS.pop("TURNED")
for _name, _other in (("asinh", "asin"), ("atan", "atanh"), ("sin", "sinh"), ("tan", "tanh")):
    _FUNCTIONS[f"complex_{_name}"] = filled(_TURNED, TURNED=f"complex_{_name}", OTHER=f"complex_{_other}")


class Helpers:
    """The helper functions that a program calls; names have a prefix that is unique among a node's kernels."""

    def __init__(self, prefix: str = "optdb") -> None:
        self._prefix = prefix
        self._sources: dict[str, str] = {}

    def get(self, kind: str, name: str, unsigned: str = "uint", width: int = 1) -> str:
        """Add the function `kind` for the C type `name`, or for vectors of it, and return the function's name.

        `unsigned` is the C type in which overflow is defined.
        """
        lanes = "" if width == 1 else str(width)
        called = f"{self._prefix}_{kind}_{name}{lanes}"
        if called not in self._sources:
            every = _FUNCTIONS if width == 1 else _VECTOR_FUNCTIONS
            code = every[kind]
            words = {"T": name + lanes, "U": unsigned + lanes, kind: called, **_NUMBERS.get(name, {})}
            words |= {"AS_T": f"as_{name}{lanes}", "AS_U": f"as_{unsigned}{lanes}"}
            others = dict.fromkeys(word for word in re.findall(r"\w+", code) if word in every and word != kind)
            words |= {other: self.get(other, name, unsigned, width) for other in others}
            self._sources[called] = filled(code, **words)
        return called

    @staticmethod
    def has_vectors(kind: str) -> bool:
        """Return whether the function `kind` exists for vectors."""
        return kind in _VECTOR_FUNCTIONS

    @property
    def source(self) -> str:
        """Return the OpenCL C of all functions."""
        return "".join(self._sources.values())

"""Relatives of the gamma function in OpenCL C: its logarithm's derivatives, and incomplete ones.

Sources, by equation:

- digamma and trigamma: Abramowitz and Stegun (1964), upwards by 6.3.5 and 6.4.6 to where the asymptotic series 6.3.18
  and 6.4.12 hold, and to negative numbers by the reflections 6.3.7 and 6.4.7. About the positive zero of digamma, its
  Taylor series, whose coefficients are Hurwitz zeta functions (DLMF 5.15.1), so that no digits are lost there.
- incomplete gamma functions: the series 8.7.1 and 8.7.3 of the DLMF, the continued fraction 8.9.2 by the method of
  Lentz as Thompson and Barnett (1986) modified it, and for parameters above 100000 Temme's uniform expansion, 8.12.
  What all have in front is written as a power of e by Stirling's series (DLMF 5.11.1), after Loader, "Fast and
  accurate computation of binomial probabilities" (2000): the large parts of the exponent cancel there before they are
  rounded. Near 1, the logarithm of the gamma function is 6.1.33 of Abramowitz and Stegun.

At poles and ends all are as SciPy has them, which the host calls.
"""

from __future__ import annotations

from fractions import Fraction

from optdb.codegen.scalars.templates import constant, polynomial

#: Bernoulli numbers of even index, from the second on.
_BERNOULLI = [Fraction(*pair) for pair in ((1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6))]

#: Where digamma is zero: three numbers that float32 holds, to be subtracted one after another.
_ZERO = (1.4616321325302124, 1.243815006546356e-08, -1.2654464444209374e-16)
#: The Hurwitz zeta functions of 2, 3, ... there, with changing signs.
_AT_ZERO = [
    *(0.9676722454476214, -0.44276316898359214, 0.2584997609556512, -0.16394270544240658, 0.10782405069126239),
    *(-0.07219956125645476, 0.048804288164143145, -0.033161126474847376, 0.022597648232218125, -0.015424765904948968),
    *(0.010538791616612182, -0.007204534386356875, 0.004926781395729858, -0.0033698016554393317, 0.00230512632673493),
    *(-0.0015769367714301987, 0.0010788252019162975, -0.000738070938996006, 0.0005049532658346026),
    *(-0.0003454680251063082, 0.00023635601564027086, -0.00016170622091974825, 0.00011063372768747429),
]

#: One less than the zeta functions of 2, 3, ..., each by its number, with changing signs.
_NEAR_ONE = [
    *(0.3224670334241132, -0.0673523010531981, 0.020580808427784546, -0.007385551028673986, 0.0028905103307415234),
    *(-0.001192753911703261, 0.0005096695247430425, -0.00022315475845357936, 9.945751278180853e-05),
    *(-4.492623673813314e-05, 2.0507212775670694e-05, -9.439488275268395e-06, 4.374866789907487e-06),
    *(-2.039215753801366e-06, 9.55141213040742e-07, -4.492469198764566e-07, 2.1207184805554667e-07),
    *(-1.00432248239681e-07, 4.769810169363981e-08, -2.2711094608943164e-08, 1.0838659214896955e-08),
    *(-5.183475041970047e-09, 2.4836745438024785e-09, -1.1921401405860912e-09, 5.731367241678862e-10),
]

#: The first two functions of Temme's expansion, DLMF 8.12.11, as power series about 0.
_TEMME_0 = [
    *(Fraction(-1, 3), Fraction(1, 12), Fraction(-2, 135), Fraction(1, 864), Fraction(1, 2835)),
    *(Fraction(-139, 777600), Fraction(1, 25515), Fraction(-571, 261273600)),
]
_TEMME_1 = [Fraction(-1, 540), Fraction(-1, 288), Fraction(1, 378), Fraction(-77, 77760)]

_STIRLING = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)]

_PSI = f"""
$T ${{name}}_positive($T x)
{{
    if (x > {constant(1.2)} && x < {constant(1.75)}) {{
        const $T d = x - {constant(_ZERO[0])} - {constant(_ZERO[1])} - {constant(_ZERO[2])};
        return d * {polynomial("d", _AT_ZERO)};
    }}
    $T sum = 0;
    for (; x < 10; x += 1)
        sum -= 1 / x;
    const $T y = 1 / (x * x);
    return sum + (log(x) - 1 / (2 * x)) - y * {polynomial("y", [b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)])};
}}
$T $name($T x)
{{
    if (x > 0 || isnan(x))
        return ${{name}}_positive(x);
    if (x == 0)
        return copysign(($T)INFINITY, -x);
    if (floor(x) == x)
        return NAN;
    return ${{name}}_positive(1 - x) - ($T)M_PI / tan(($T)M_PI * (x - rint(x)));
}}
"""

_TRI_GAMMA = f"""
$T ${{name}}_positive($T x)
{{
    $T sum = 0;
    for (; x < 10; x += 1)
        sum += 1 / (x * x);
    const $T y = 1 / (x * x);
    return sum + 1 / x + y / 2 + y / x * {polynomial("y", _BERNOULLI)};
}}
$T $name($T x)
{{
    if (x > 0 || isnan(x))
        return ${{name}}_positive(x);
    if (floor(x) == x)
        return INFINITY;
    const $T s = sin(($T)M_PI * (x - rint(x)));
    return ($T)(M_PI * M_PI) / (s * s) - ${{name}}_positive(1 - x);
}}
"""

#: log(1 + u) - u, where 1 + u is y. With r = u / (2 + u), the logarithm is 2 (r + r^3 / 3 + r^5 / 5 + ...).
_LOG_LESS = f"""
$T $name($T u, $T y)
{{
    if (fabs(u) > {constant(0.4)})
        return log(y) - u;
    const $T r = u / (2 + u), s = r * r;
    return r * (2 * s * {polynomial("s", [Fraction(1, 2 * k + 3) for k in range(13)])} - u);
}}
"""

#: x^a e^-x / gamma(a + 1)
_FRONT = f"""
$T $name($T a, $T x)
{{
    if (a < 10)
        return exp(a * log(x) - x - lgamma(a + 1));
    const $T y = 1 / (a * a);
    const $T stirling = {polynomial("y", _STIRLING)} / a;
    return exp(a * $log_less((x - a) / a, x / a) - stirling) / sqrt(2 * ($T)M_PI * a);
}}
"""

_LN_GAMMA_NEAR_1 = f"""
$T $name($T a)
{{
    if (a > ($T)0.5)
        return lgamma(a + 1);
    return a * {constant(0.42278433509846713)} - log1p(a) + a * a * {polynomial("a", _NEAR_ONE)};
}}
"""

_SERIES = """
$T $name($T a, $T x)
{
    $T sum = 1, part = 1, n = a;
    for (int i = 0; i < 8192 && part > sum * $EPSILON; ++i) {
        n += 1;
        part *= x / n;
        sum += part;
    }
    return $gamma_front(a, x) * sum;
}
"""

_FRACTION = """
$T $name($T a, $T x)
{
    const $T tiny = $TINY;
    $T b = x + 1 - a, c = 1 / tiny, d = 1 / b, fraction = d;
    for (int i = 1; i < 8192; ++i) {
        const $T top = i * (a - i);
        b += 2;
        d = top * d + b;
        c = b + top / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = fabs(c) < tiny ? tiny : c;
        fraction *= d * c;
        if (fabs(d * c - 1) < $EPSILON)
            break;
    }
    return $gamma_front(a, x) * a * fraction;
}
"""

#: Few numbers: one less the power in front, and what is left of the series.
_SMALL = """
$T $name($T a, $T x)
{
    $T part = 1, sum = 0;
    for (int n = 1; n < 64; ++n) {
        part *= -x / n;
        sum += part / (a + n);
        if (fabs(part) <= fabs(sum) * $EPSILON)
            break;
    }
    const $T power = a * log(x) - $ln_gamma_near_1(a);
    return -expm1(power) - exp(power) * a * sum;
}
"""

#: The upper function, or the lower one.
_UNIFORM = f"""
$T $name($T a, $T x, int upper)
{{
    const $T u = (x - a) / a;
    const $T half_square = -$log_less(u, x / a);
    const $T h = copysign(sqrt(2 * half_square), u);
    const $T rest = exp(-a * half_square) / sqrt(2 * ($T)M_PI * a)
        * ({polynomial("h", _TEMME_0)} + {polynomial("h", _TEMME_1)} / a);
    const $T z = h * sqrt(a / 2);
    return upper ? erfc(z) / 2 + rest : erfc(-z) / 2 - rest;
}}
"""

_UPPER = """
$T $name($T a, $T x)
{
    if (isnan(a) || isnan(x) || a < 0 || x < 0)
        return NAN;
    if (a == 0)
        return x > 0 ? 0 : ($T)NAN;
    if (x == 0)
        return 1;
    if (isinf(a))
        return isinf(x) ? ($T)NAN : 1;
    if (isinf(x))
        return 0;
    if (a > 100000)
        return fabs(x - a) > a / 4 ? x < a : $gamma_uniform(a, x, 1);
    if (x > ($T)1.1)
        return x < a ? 1 - $gamma_series(a, x) : $gamma_fraction(a, x);
    if (x <= ($T)0.5 ? a * log(x) < ($T)-0.4 : a > ($T)1.1 * x)
        return 1 - $gamma_series(a, x);
    return $gamma_small(a, x);
}
"""

_LOWER = """
$T $name($T a, $T x)
{
    if (isnan(a) || isnan(x) || a < 0 || x < 0)
        return NAN;
    if (a == 0)
        return x > 0 ? 1 : ($T)NAN;
    if (x == 0)
        return 0;
    if (isinf(a))
        return isinf(x) ? ($T)NAN : 0;
    if (isinf(x))
        return 1;
    if (a > 100000)
        return fabs(x - a) > a / 4 ? x > a : $gamma_uniform(a, x, 0);
    return x > 1 && x > a ? 1 - $gammaincc(a, x) : $gamma_series(a, x);
}
"""

_CHI2SF = """
$T $name($T x, $T k)
{
    if (isnan(x) || !(k > 0))
        return NAN;
    return x <= 0 ? 1 : isinf(x) ? 0 : $gammaincc(k / 2, x / 2);
}
"""

TEMPLATES = {
    "psi": _PSI,
    "tri_gamma": _TRI_GAMMA,
    "log_less": _LOG_LESS,
    "gamma_front": _FRONT,
    "ln_gamma_near_1": _LN_GAMMA_NEAR_1,
    "gamma_series": _SERIES,
    "gamma_fraction": _FRACTION,
    "gamma_small": _SMALL,
    "gamma_uniform": _UNIFORM,
    "gammaincc": _UPPER,
    "gammainc": _LOWER,
    "chi2sf": _CHI2SF,
    "gammau": "\n$T $name($T a, $T x)\n{\n    return $gammaincc(a, x) * $gamma(a);\n}\n",
    "gammal": "\n$T $name($T a, $T x)\n{\n    return $gammainc(a, x) * $gamma(a);\n}\n",
}

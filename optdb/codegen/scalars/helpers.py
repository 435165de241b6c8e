"""Functions in OpenCL C for what takes more than an expression.

Each is a template: ``$T`` is the type it works in, ``$U`` the unsigned type in which
overflow is defined, ``$EPSILON`` what the type adds to 1, ``$TINY`` next to nothing (those of
complex numbers have other words, see :mod:`complexes`), and the name of another template is
what that one is called. A program holds those that its
expressions asked for, and those that these need, once each. Special functions are in
modules of their own.

Whole numbers: division by zero gives zero, as in NumPy, and nothing here traps.
"""

from __future__ import annotations

from string import Template

from optdb.codegen.scalars import bessel, complexes, errors, gamma

_TEMPLATES = {
    **bessel.TEMPLATES,
    **complexes.TEMPLATES,
    **errors.TEMPLATES,
    **gamma.TEMPLATES,
    "int_div": """
$T $name($T x, $T y)
{
    if (y == 0)
        return 0;
    if (y == ($T)-1)
        return ($T)(0 - ($U)x);
    $T quotient = x / y;
    return quotient - ((x % y != 0) && ((x < 0) != (y < 0)));
}
""",
    "uint_div": """
$T $name($T x, $T y)
{
    return y == 0 ? 0 : x / y;
}
""",
    "int_mod": """
$T $name($T x, $T y)
{
    if (y == 0 || y == ($T)-1)
        return 0;
    $T rest = x % y;
    return (rest != 0 && ((rest < 0) != (y < 0))) ? rest + y : rest;
}
""",
    "uint_mod": """
$T $name($T x, $T y)
{
    return y == 0 ? 0 : x % y;
}
""",
    # The remainder is exact, so the quotient is a whole number but for its last bits.
    "float_div": """
$T $name($T x, $T y)
{
    if (y == 0)
        return x / y;
    $T rest = fmod(x, y);
    $T quotient = (x - rest) / y;
    if (rest != 0 && ((y < 0) != (rest < 0)))
        quotient -= 1;
    if (quotient == 0)
        return copysign(($T)0, x / y);
    $T whole = floor(quotient);
    return quotient - whole > ($T)0.5f ? whole + 1 : whole;
}
""",
    "float_mod": """
$T $name($T x, $T y)
{
    $T rest = fmod(x, y);
    if (y == 0)
        return rest;
    if (rest == 0)
        return copysign(($T)0, y);
    return (y < 0) != (rest < 0) ? rest + y : rest;
}
""",
    "int_pow": """
$T $name($T x, $T y)
{
    if (y < 0)
        return x == 1 ? 1 : x == ($T)-1 ? ((y & 1) ? x : 1) : 0;
    $U base = ($U)x, result = 1;
    for ($U left = ($U)y; left != 0; left >>= 1) {
        if (left & 1)
            result *= base;
        base *= base;
    }
    return ($T)result;
}
""",
    "uint_pow": """
$T $name($T x, $T y)
{
    $U base = ($U)x, result = 1;
    for ($U left = ($U)y; left != 0; left >>= 1) {
        if (left & 1)
            result *= base;
        base *= base;
    }
    return ($T)result;
}
""",
    "int_abs": """
$T $name($T x)
{
    return x < 0 ? ($T)(0 - ($U)x) : x;
}
""",
    "float_sgn": """
$T $name($T x)
{
    return x > 0 ? ($T)1 : x < 0 ? ($T)-1 : x == 0 ? ($T)0 : x;
}
""",
    "softplus": """
$T $name($T x)
{
    return x > 40 ? x : log1p(exp(x));
}
""",
    "fast_sigmoid": """
$T $name($T twice)
{
    $T x = fabs(twice) / 2;
    $T z = x < ($T)1.7 ? ($T)1.5 * x / (1 + x)
         : x < 3 ? ($T)0.935409070603099 + ($T)0.0458812946797165 * (x - ($T)1.7)
         : ($T)0.99505475368673;
    return (copysign(z, twice) + 1) / 2;
}
""",
    # At the poles, and at the ends, as C99 (annex F.9.5.4), Theano's C code and SciPy 1.15 have it; drivers differ.
    "gamma": """
$T $name($T x)
{
    if (x == 0)
        return copysign(($T)INFINITY, x);
    return x < 0 && floor(x) == x ? ($T)NAN : tgamma(x);
}
""",
    "gammaln": """
$T $name($T x)
{
    return x < 0 && isinf(x) ? x : lgamma(x);
}
""",
    "round_half": """
float $name($T x)
{
    ushort bits;
    vstore_half(x, 0, (half *)&bits);
    return vload_half(0, (const half *)&bits);
}
""",
}


class Helpers:
    """The functions that one program asks for.

    Parameters
    ----------
    prefix : str
        What their names begin with: another one for each code of a node.
    """

    def __init__(self, prefix: str = "optdb") -> None:
        self._prefix = prefix
        self._sources: dict[str, str] = {}

    def get(self, kind: str, name: str, unsigned: str = "uint") -> str:
        """Return what the function `kind` is called for the type `name`, and take it in.

        Parameters
        ----------
        kind : str
            Which function.
        name : str
            The C type that it works in.
        unsigned : str
            The unsigned type for arithmetic of that width.
        """
        called = f"{self._prefix}_{kind}_{name}"
        if called not in self._sources:
            text = _TEMPLATES[kind]
            needed = {other: self.get(other, name, unsigned) for other in _words(text) if other in _TEMPLATES}
            fixed = {"T": name, "U": unsigned, "name": called, **_NUMBERS.get(name, {})}
            self._sources[called] = Template(text).substitute(fixed, **needed)
        return called

    @property
    def source(self) -> str:
        """All of them, in OpenCL C."""
        return "".join(self._sources.values())


_NUMBERS = {
    "float": {"EPSILON": "FLT_EPSILON", "TINY": "1e-30f"},
    "double": {"EPSILON": "DBL_EPSILON", "TINY": "1e-300"},
    "float2": {"R": "float", "LARGE": "88.0f", "HUGE": "8.0e37f", "SMALL": "1e-24f"},
    "double2": {"R": "double", "LARGE": "709.0", "HUGE": "4.0e307", "SMALL": "1e-276"},
}


def _words(text: str) -> list[str]:
    """Return the names in a template, each once."""
    found = [match["named"] or match["braced"] for match in Template.pattern.finditer(text)]
    return list(dict.fromkeys(word for word in found if word))

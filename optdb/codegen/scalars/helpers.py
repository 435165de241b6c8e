"""OpenCL C functions for scalar ops that need more than an expression, from the .cl files of this package.

The functions' placeholders are ``T`` (the computed type), ``U`` (the unsigned type in which overflow is defined),
``AS_T`` and ``AS_U`` (reinterpret bits), ``EPSILON``, ``LEAST`` (the smallest normal number), ``MANTISSA`` and ``BIAS``
(the mantissa's bits and the exponent's bias), ``LOG_MAX`` (exceeds the logarithms of all numbers and of their
reciprocals), ``TINY`` (a number close to zero), ``SPLIT`` (a product with it splits a number into two halves), and the
names of called functions; for complex functions, see ``complexes.cl``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from optdb.codegen.scalars.coefficients import COEFFICIENTS
from optdb.codegen.source import filled, functions

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
        name: _POLYNOMIAL.sub(lambda asked: polynomial(asked["x"], COEFFICIENTS[asked["name"]]), code)
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

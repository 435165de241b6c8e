"""What the texts of special functions are put together from: constants and polynomials in the type ``$T``."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def constant(value: float | Fraction) -> str:
    """Return a number in the type that a function works in."""
    return f"($T){float(value)!r}"


def polynomial(name: str, coefficients: Sequence[float | Fraction]) -> str:
    """Return ``c[0] + c[1] * x + c[2] * x ** 2 + ...`` by Horner's rule, in brackets.

    Parameters
    ----------
    name : str
        What x is called.
    coefficients : sequence
        The numbers c.
    """
    text = constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        text = f"{constant(coefficient)} + {name} * ({text})"
    return f"({text})"

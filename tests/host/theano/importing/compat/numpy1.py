"""Reads the table of result types of NumPy 1.23, and writes it.

If that version is installed, ``python -m tests.host.theano.importing.compat.numpy1`` rewrites the table. Each line of
``numpy1_types.txt`` begins with a left operand: ``A`` (an array with one dimension), ``S`` (a scalar) or ``Z`` (an
array without dimensions), and the character of its type. Then the line has a character for each right operand in
`OPERANDS`: the type of the sum.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

TABLE = Path(__file__).with_name("numpy1_types.txt")
TYPES = "?bBhHiIlLefdFD"

NUMBERS = (
    *(
        0,
        1,
        -1,
        127,
        128,
        200,
        255,
        256,
        -128,
        -129,
        32767,
        32768,
        65535,
        65536,
        -32769,
        2**31,
        2**32,
        2**63 - 1,
        2**63,
    ),
    *(0.0, 0.1, 64999.0, 65504.0, 1e30, 1e300, float("inf"), float("nan"), 1j, 1e300j, True),
)
_VALUES = (0, 1, -1, 100, 200, -200, 40000, 70000, 0.1, 1e5, 1e300, 1j)


def scalar(code: str, value: complex) -> np.generic:
    """Return a scalar of a type, with a value that it can represent."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.array([value]).astype(code)[0]


OPERANDS = [*NUMBERS, *(scalar(code, value) for code in TYPES for value in _VALUES)]


def left(role: str, code: str) -> np.ndarray | np.generic:
    """Return the left operand of a line."""
    array = np.array([1]).astype(code)
    return {"A": array, "S": array[0], "Z": array.reshape(())}[role]


def type_of(result: object) -> str:
    """Return a character for the type of a result."""
    # Use one character for equal types: "l" (long) and "q" (long long) can have the same width.
    return np.dtype(np.asarray(result).dtype.str).char


def main() -> None:
    """Write the table."""
    lines = []
    for role in "ASZ":
        for code in TYPES:
            types = [type_of(left(role, code) + operand) for operand in OPERANDS]
            lines.append(f"{role} {code} {''.join(types)}\n")
    TABLE.write_text("".join(lines))


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        main()

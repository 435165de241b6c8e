"""Numbers that depend on lengths, as kernel arguments, so that loops over arrays of other lengths share their code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.kernels import SSIZES, Packed
from optdb.codegen.scalars.program import Number
from optdb.codegen.scalars.types import c_type, literal
from optdb.runtime.sizes import SymInt

#: Numbers up to this one are constants in the code, because compilers unroll short loops and simplify products.
LARGEST_CONSTANT = 16
#: Distances between rows up to this one are also constants, and so are lengths of rows that kernels multiply by a
#: vector or add up.
LARGEST_ROW = 128
#: The number of integers in one kernel argument.
_PACKED = 16
#: Kernels compute indices in 32 bits if all indices are below this limit.
NARROW = 1 << 30


def stays_constant(number: int) -> bool:
    """Return whether a number that depends on lengths is a constant in the code, rather than an argument."""
    return _is_within(number, LARGEST_CONSTANT)


def _is_within(number: int, largest: int) -> bool:
    return not isinstance(number, SymInt) and abs(number) <= largest


class SizeArguments:
    """The numbers that a kernel takes as arguments, called ``z0``, ``z1`` and so on in its code."""

    def __init__(self, is_narrow: bool) -> None:
        #: Whether all indices of points and elements are below `NARROW`.
        self.is_narrow = is_narrow
        #: Maps each number to its position. Numbers are not compared, because that would restrict symbolic lengths.
        self._positions: dict[Any, int] = {}

    @property
    def values(self) -> list[int]:
        return list(self._positions)

    @property
    def names(self) -> list[str]:
        return [f"z{position}" for position in self._positions.values()]

    def text(self, number: int) -> str:
        """Return the code for an int64 number: a constant if the number is small."""
        return literal(number, "int64") if stays_constant(number) else self._argument(number)

    def of_row(self, number: int) -> str:
        """Return the code for the length of a row, or for the distance between rows."""
        return literal(number, "int64") if _is_within(number, LARGEST_ROW) else self._argument(number)

    def index(self, number: int) -> str:
        """Return the code for a factor or an addend of an index."""
        if not self.is_narrow:
            return self.text(number)
        return f"{number}" if stays_constant(number) else f"(int){self._argument(number)}"

    def quotient(self, value: str, length: int) -> str:
        """Return the code for the index of a point divided by a length; the code can call a function of loops.cl."""
        if not self.is_narrow:
            return f"{value} / (ga_size){self.text(length)}"
        if stays_constant(length):
            return f"(uint){value} / {length}u"
        if isinstance(length, SymInt):
            return f"(uint){value} / (uint){self._argument(length)}"
        return f"quotient({value}, {self._argument(_divisor(length))})"

    def value(self, number: Number | SymInt) -> str:
        """Return the code for a number that is computed from lengths; a symbolic number is an int64."""
        if isinstance(number, SymInt):
            return self._argument(number)
        kind = c_type(number.dtype)
        if number.dtype in ("float32", "float64"):
            bits = np.asarray(number.value).view(f"i{np.dtype(number.dtype).itemsize}")
            return f"as_{kind}(({'int' if kind == 'float' else 'long'}){self._argument(int(bits))})"
        if np.dtype(number.dtype).kind in "iu":
            return f"({kind}){self._argument(int(np.asarray(number.value).astype('int64')))}"
        return literal(number.value, number.dtype)

    def _argument(self, number: int | SymInt) -> str:
        return f"z{self._positions.setdefault(number, len(self._positions))}"


def _divisor(length: int) -> int:
    """Return ``shift << 32 | multiplier`` such that ``index * multiplier >> shift`` is ``index // length``.

    The quotient is exact for indices below 2^31. See Granlund and Montgomery, Division by Invariant Integers using
    Multiplication (PLDI 1994).
    """
    shift = 31 + (length - 1).bit_length()
    return shift << 32 | -(-(1 << shift) // length)


def packed(numbers: Sequence[int]) -> list[Packed]:
    """Return numbers as kernel arguments of 16 numbers each, because each argument makes a launch slower."""
    return [SSIZES.pack(numbers[i : i + _PACKED]) for i in range(0, len(numbers), _PACKED)]


def packed_params(count: int) -> list[str]:
    """Return the parameters of a kernel that takes `packed` numbers."""
    return [f"long16 sizes{n}" for n in range(-(-count // _PACKED))]


def packed_number(n: int) -> str:
    """Return the code for the nth of a kernel's `packed` numbers."""
    return f"sizes{n // _PACKED}.s{n % _PACKED:X}"

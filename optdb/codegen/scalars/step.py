"""One application of a scalar op in a program: to numbers, or to vectors of them.

A processor computes the functions of a vector type many times faster than one number after the other, and its compiler
does not vectorize them. An expression that the methods of a :class:`ScalarStep` build is valid for a
:class:`LaneStep`, too, in which comparisons return masks, and masks select.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from optdb.codegen.scalars.helpers import Helpers
from optdb.codegen.scalars.program import Scalar
from optdb.codegen.scalars.types import c_type, convert, is_complex, is_float, literal, unsigned


class NotInVectors(Exception):
    """An expression is of numbers alone: vectors are computed lane by lane."""


@dataclass
class ScalarStep:
    """One application of a scalar op to numbers."""

    scalar: Scalar
    #: Of the inputs.
    dtypes: list[str]
    #: The inputs, as expressions.
    args: list[str]
    #: Collects the functions that the expression calls.
    helpers: Helpers
    #: Collects the dtypes of intermediate values.
    used: set[str]

    # Without hints, they are no fields.
    width = 1
    is_wrong = False

    @property
    def out(self) -> str:
        """The dtype of the output."""
        return self.scalar.dtype

    def input(self, i: int, dtype: str | None = None) -> str:
        """Return an input, converted to `dtype`; to the output's if not given."""
        dtype = dtype or self.out
        self.used.add(dtype)
        return f"({convert(self._arg(i), self.dtypes[i], dtype, self.width)})"

    def inputs(self, dtype: str | None = None) -> list[str]:
        """Return all inputs, converted to `dtype`; to the output's if not given."""
        return [self.input(i, dtype) for i in range(len(self.args))]

    def number(self, value: Any, dtype: str | None = None) -> str:
        """Return a constant of `dtype`; of the output's if not given."""
        return literal(value, dtype or self.out)

    def call(self, kind: str, *args: str, dtype: str | None = None) -> str:
        """Return a call of a helper in a dtype, the output's if not given: on all inputs, or on other expressions."""
        dtype = dtype or self.out
        function = self.helpers.get(kind, c_type(dtype), unsigned(dtype))
        return f"{function}({', '.join(args or self.inputs(dtype))})"

    def element(self) -> str:
        """Return an element of the array that the scalar names: the input is its index, from an offset on."""
        return self._element(self.input(0, "int64"))

    def _element(self, index: str) -> str:
        load = "ga_half2float" if self.out == "float16" else ""
        return f"{load}({self.scalar['array']}_at[{index} + {self.scalar['offset']}L])"

    def joined(self, operator: str, *args: str) -> str:
        """Return expressions of the output's dtype with an operator between them: whole numbers wrap."""
        if is_float(self.out):
            return f" {operator} ".join(args)
        return f" {operator} ".join(f"({unsigned(self.out)}){arg}" for arg in args)

    def truth(self, comparison: str) -> str:
        """Return the result of a comparison as a number of the output's dtype."""
        return comparison

    def choose(self, comparison: str, x: str, y: str, compared: str | None = None) -> str:
        """Return `x` where a comparison of inputs holds, which have the dtype `compared` or the output's, else `y`."""
        return f"(({comparison}) ? {x} : {y})"

    def type(self, dtype: str | None = None) -> str:
        """Return the type of values of `dtype`; of the output's if not given."""
        return c_type(dtype or self.out)

    def _arg(self, i: int) -> str:
        return self.args[i]

    @property
    def is_complex(self) -> bool:
        """Tell whether complex numbers go in or come out."""
        return any(map(is_complex, (*self.dtypes, self.out)))

    @property
    def kind(self) -> str:
        """'float', 'int' or 'uint', as the output is."""
        return "float" if is_float(self.out) else "int" if self.out.startswith("int") else "uint"


@dataclass(kw_only=True)
class LaneStep(ScalarStep):
    """One application of a scalar op to vectors."""

    #: How many numbers a vector has.
    width: int
    #: Tells of an input whether it is one number for all lanes, and no vector.
    is_uniform: Callable[[str], bool]
    #: Whether the driver's function of vectors is wrong.
    is_wrong: bool = False

    def number(self, value: Any, dtype: str | None = None) -> str:
        return f"(({self.type(dtype)})({super().number(value, dtype)}))"

    def call(self, kind: str, *args: str, dtype: str | None = None) -> str:
        raise NotInVectors(f"{kind} is a function of numbers")

    def element(self) -> str:
        # A vector of its lanes' elements, not an array that becomes a vector: a processor waits until narrow stores are
        # in memory before it loads them as a wide one.
        index = self.input(0, "int64")
        return f"({self.type()})({', '.join(self._element(f'{index}.s{lane:x}') for lane in range(self.width))})"

    def joined(self, operator: str, *args: str) -> str:
        kind = c_type(self.out)
        if kind not in _UNSIGNED:
            return f" {operator} ".join(args)
        wide = f"as_{_UNSIGNED[kind]}{self.width}"
        return f"as_{self.type()}({f' {operator} '.join(f'{wide}{arg}' for arg in args)})"

    def truth(self, comparison: str) -> str:
        return f"convert_{self.type()}(-({comparison}))"

    def choose(self, comparison: str, x: str, y: str, compared: str | None = None) -> str:
        mask = self._mask(self.out)
        if compared is not None and self._mask(compared) != mask:
            comparison = f"convert_{mask}({comparison})"
        return f"select({y}, {x}, {comparison})"

    def _arg(self, i: int) -> str:
        arg = self.args[i]
        return f"({self.type(self.dtypes[i])})({arg})" if self.is_uniform(arg) else arg

    def type(self, dtype: str | None = None) -> str:
        return f"{c_type(dtype or self.out)}{self.width}"

    def _mask(self, dtype: str) -> str:
        """Return the type of the results of comparisons of a dtype."""
        return f"{_SIGNED[c_type(dtype)]}{self.width}"


_UNSIGNED = {"char": "uchar", "short": "ushort", "int": "uint", "long": "ulong"}
_SIGNED = {wide: kind for kind, wide in _UNSIGNED.items()} | {kind: kind for kind in _UNSIGNED}
_SIGNED |= {"float": "int", "double": "long"}

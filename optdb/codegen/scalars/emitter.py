"""Emitters of OpenCL C for one application of a scalar op, to numbers or to vectors.

Expressions that are built with the methods of a :class:`ScalarEmitter` are also valid for a :class:`VectorEmitter`, in
which comparisons return masks, and choices are selects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from optdb.codegen.scalars.helpers import Helpers
from optdb.codegen.scalars.program import Scalar
from optdb.codegen.scalars.types import c_type, convert, is_complex, is_float, literal, unsigned


class NotInVectors(Exception):
    """An expression has no vector form and must be computed lane by lane."""


@dataclass
class ScalarEmitter:
    """Emits the parts of an expression: one application of a scalar op to numbers."""

    scalar: Scalar
    dtypes: list[str]
    args: list[str]
    helpers: Helpers
    #: Collects the dtypes of intermediate values.
    used: set[str]

    # Without annotations, these are class attributes and not dataclass fields.
    width = 1
    is_wrong = False

    @property
    def out(self) -> str:
        """The dtype of the output."""
        return self.scalar.dtype

    def input(self, i: int, dtype: str | None = None) -> str:
        """Return an input, converted to `dtype` (by default the output's dtype)."""
        dtype = dtype or self.out
        self.used.add(dtype)
        return f"({convert(self._arg(i), self.dtypes[i], dtype, self.width)})"

    def inputs(self, dtype: str | None = None) -> list[str]:
        """Return all inputs, converted to `dtype` (by default the output's dtype)."""
        return [self.input(i, dtype) for i in range(len(self.args))]

    def number(self, value: Any, dtype: str | None = None) -> str:
        """Return a constant of `dtype` (by default the output's dtype)."""
        return literal(value, dtype or self.out)

    def call(self, kind: str, *args: str, dtype: str | None = None) -> str:
        """Return a call of a helper on `args` (by default all inputs) in `dtype` (by default the output's dtype)."""
        dtype = dtype or self.out
        function = self.helpers.get(kind, c_type(dtype), unsigned(dtype))
        return f"{function}({', '.join(args or self.inputs(dtype))})"

    def element(self) -> str:
        """Return an element of the array that the scalar names, at an index that is the input plus an offset."""
        return self._element(self.input(0, "int64"))

    def _element(self, index: str) -> str:
        load = "ga_half2float" if self.out == "float16" else ""
        return f"{load}({self.scalar['array']}_at[{index} + {self.scalar['offset']}L])"

    def joined(self, operator: str, *args: str) -> str:
        """Return expressions of the output's dtype joined by an operator; integers wrap on overflow."""
        if is_float(self.out):
            return f" {operator} ".join(args)
        return f" {operator} ".join(f"({unsigned(self.out)}){arg}" for arg in args)

    def truth(self, comparison: str) -> str:
        """Return the result of a comparison as a number of the output's dtype."""
        return comparison

    def choose(self, comparison: str, x: str, y: str, compared: str | None = None) -> str:
        """Return `x` where a comparison of values of dtype `compared` (by default the output's) holds, else `y`."""
        return f"(({comparison}) ? {x} : {y})"

    def type(self, dtype: str | None = None) -> str:
        """Return the type of values of `dtype` (by default the output's dtype)."""
        return c_type(dtype or self.out)

    def _arg(self, i: int) -> str:
        return self.args[i]

    @property
    def is_complex(self) -> bool:
        """Whether an input or the output is complex."""
        return any(map(is_complex, (*self.dtypes, self.out)))

    @property
    def kind(self) -> str:
        """The kind of the output: 'float', 'int' or 'uint'."""
        return "float" if is_float(self.out) else "int" if self.out.startswith("int") else "uint"


@dataclass(kw_only=True)
class VectorEmitter(ScalarEmitter):
    """Emits the parts of an expression: one application of a scalar op to vectors."""

    width: int
    is_uniform: Callable[[str], bool]
    is_wrong: bool = False

    def number(self, value: Any, dtype: str | None = None) -> str:
        return f"(({self.type(dtype)})({super().number(value, dtype)}))"

    def call(self, kind: str, *args: str, dtype: str | None = None) -> str:
        raise NotInVectors(f"{kind} is a function of numbers")

    def element(self) -> str:
        # A vector literal of the lanes' elements, not a union: a wide load of narrow stores defeats store-to-load
        # forwarding.
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
        return f"{_SIGNED[c_type(dtype)]}{self.width}"


_UNSIGNED = {"char": "uchar", "short": "ushort", "int": "uint", "long": "ulong"}
_SIGNED = {wide: kind for kind, wide in _UNSIGNED.items()} | {kind: kind for kind in _UNSIGNED}
_SIGNED |= {"float": "int", "double": "long"}

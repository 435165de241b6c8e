"""Indices within kernels: affine functions of loop variables and of values that the kernel computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LoweredValue:
    """A value in the body of a kernel: an input, or the result of a step."""

    number: int
    is_step: bool


#: The number of a loop's axis, or a value of int64.
Variable = int | LoweredValue


@dataclass(frozen=True)
class Index:
    """A constant, and variables with factors."""

    const: int = 0
    terms: tuple[tuple[Variable, int], ...] = ()

    @classmethod
    def of(cls, variable: Variable) -> Index:
        """Return the index that is a variable."""
        return cls(0, ((variable, 1),))

    @property
    def is_const(self) -> bool:
        """Whether it depends on no variable."""
        return not self.terms

    @property
    def is_affine(self) -> bool:
        """Whether it depends on loop variables alone."""
        return all(isinstance(variable, int) for variable, _ in self.terms)

    def factor(self, axis: int) -> int:
        """Return the factor of a loop's axis."""
        return next((factor for variable, factor in self.terms if variable == axis), 0)

    def plus(self, other: Index, factor: int = 1) -> Index:
        """Return the sum of this index, and of another one times a factor."""
        terms: dict[Variable, int] = dict(self.terms)
        for variable, by in other.terms:
            terms[variable] = terms.get(variable, 0) + by * factor
        ordered = sorted(((variable, by) for variable, by in terms.items() if by), key=lambda term: _order(term[0]))
        return Index(self.const + other.const * factor, tuple(ordered))


def _order(variable: Variable) -> tuple[Any, ...]:
    return (2 if variable.is_step else 1, variable.number) if isinstance(variable, LoweredValue) else (0, variable)

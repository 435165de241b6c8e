"""The body of a fused loop: a scalar program, the buffer elements that the program reads, and their indices."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from optdb.codegen.loops.sizes import stays_constant
from optdb.codegen.scalars.program import Number, Scalar, ScalarProgram
from optdb.runtime.sizes import SymInt, is_same


@dataclass(frozen=True)
class LoweredValue:
    """A value in a kernel body: an input, or the result of a step."""

    number: int
    is_step: bool


#: A variable of an index: the number of a loop's axis, or an int64 value.
Variable = int | LoweredValue


@dataclass(frozen=True)
class Index:
    """A linear combination of variables, plus a constant."""

    const: int = 0
    terms: tuple[tuple[Variable, int], ...] = ()

    @classmethod
    def of(cls, variable: Variable) -> Index:
        """Return the index that consists of one variable."""
        return cls(0, ((variable, 1),))

    @property
    def is_const(self) -> bool:
        """Whether the index depends on no variable."""
        return not self.terms

    @property
    def is_affine(self) -> bool:
        """Whether the index depends on loop variables only."""
        return all(isinstance(variable, int) for variable, _ in self.terms)

    def factor(self, axis: int) -> int:
        """Return the factor of a loop axis in this index."""
        return next((factor for variable, factor in self.terms if variable == axis), 0)

    def plus(self, other: Index, factor: int = 1) -> Index:
        """Return this index plus `factor` times another index."""
        terms: dict[Variable, int] = dict(self.terms)
        for variable, by in other.terms:
            terms[variable] = terms.get(variable, 0) + by * factor
        ordered = sorted(((variable, by) for variable, by in terms.items() if by), key=lambda term: _order(term[0]))
        return Index(self.const + other.const * factor, tuple(ordered))


def _order(variable: Variable) -> tuple[Any, ...]:
    return (2 if variable.is_step else 1, variable.number) if isinstance(variable, LoweredValue) else (0, variable)


@dataclass(eq=False)
class Buffer:
    """Memory for `size` elements of one dtype."""

    size: int
    dtype: str
    name: str = "a value"

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.size * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Load:
    """The element of a buffer at an affine index, which a body reads."""

    buffer: Buffer
    index: Index


@dataclass(frozen=True)
class RowProduct:
    """The dot product of a vector in memory and the row of a matrix in memory that the loop's index selects."""

    matrix: Buffer
    offset: int
    row_stride: int
    vector: Buffer
    vector_offset: int
    length: int


@dataclass(frozen=True)
class LoopIndex:
    """The value of an affine index, as an input of a body."""

    index: Index


@dataclass(frozen=True)
class LengthValue:
    """A number that is computed from lengths; kernels take it as an argument. A symbolic number is an int64."""

    number: Number | SymInt

    @property
    def dtype(self) -> str:
        return "int64" if isinstance(self.number, SymInt) else self.number.dtype


#: An input of a body.
Source = Load | RowProduct | LoopIndex | LengthValue


def _buffers_of(source: Source) -> set[Buffer]:
    if isinstance(source, Load):
        return {source.buffer}
    return {source.matrix, source.vector} if isinstance(source, RowProduct) else set()


#: A value, or a constant of the program.
Operand = LoweredValue | Number


class TooLarge(Exception):
    """Raised if a body would have more than its maximum number of steps."""


class LoopBody:
    """The body of a kernel that loops over a domain: a scalar program and its sources, without duplicates.

    If the body would have more than `most_steps` steps, methods that add steps raise `TooLarge`.
    """

    def __init__(self, domain: Sequence[int], most_steps: int = sys.maxsize) -> None:
        self.domain = tuple(domain)
        self.most_steps = most_steps
        self.sources: list[Source] = []
        self.dtypes: list[str] = []
        self.steps: list[tuple[Scalar, tuple[Operand, ...]]] = []
        #: The buffers that are read at computed indices.
        self.tables: list[Buffer] = []
        self._slots: dict[Any, LoweredValue] = {}
        #: For each step that `buffers_needed` has visited, the buffers on which the step depends.
        self._needs: list[set[Buffer]] = []

    @property
    def buffers_read(self) -> set[Buffer]:
        return {*self.tables, *(buffer for source in self.sources for buffer in _buffers_of(source))}

    def buffers_of(self, operand: Operand) -> set[Buffer]:
        """Return the buffers from which an input or a step loads its value; the set is empty for other values."""
        if isinstance(operand, Number):
            return set()
        if not operand.is_step:
            return _buffers_of(self.sources[operand.number])
        scalar = self.steps[operand.number][0]
        return {self.table_of(scalar)} if scalar.name == "Element" else set()

    def buffers_needed(self, operands: Iterable[Operand]) -> set[Buffer]:
        """Return all buffers from which values are loaded or computed."""
        while len(self._needs) < len(self.steps):
            number = len(self._needs)
            own = self.buffers_of(LoweredValue(number, is_step=True))
            self._needs.append(own.union(*map(self._needs_of, self.steps[number][1])))
        return set().union(*map(self._needs_of, operands))

    def _needs_of(self, operand: Operand) -> set[Buffer]:
        if isinstance(operand, LoweredValue) and operand.is_step:
            return self._needs[operand.number]
        return self.buffers_of(operand)

    def element_of(self, buffer: Buffer, offset: Any) -> Scalar:
        """Return the scalar op that reads a buffer at a computed index plus an offset."""
        if buffer not in self.tables:
            self.tables.append(buffer)
        table = f"table{self.tables.index(buffer)}"
        return Scalar("Element", buffer.dtype, (("array", table), ("offset", offset)))

    def table_of(self, scalar: Scalar) -> Buffer:
        """Return the buffer that a scalar op from `element_of` reads."""
        return self.tables[int(str(scalar["array"]).removeprefix("table"))]

    def apply(self, scalar: Scalar, operands: Sequence[Operand]) -> Operand:
        """Append a step unless an identical one exists; return the step's result."""
        step = scalar, tuple(operands)
        if step not in self._slots and scalar.name == "Pow" and scalar.dtype in ("float32", "float64"):
            base, exponent = operands
            if isinstance(exponent, Number) and not isinstance(base, Number) and self.dtype_of(base) == scalar.dtype:
                found = power(operands[0], exponent.value, scalar.dtype, self.apply)
                if found is not None:
                    return found
        if step not in self._slots:
            if len(self.steps) >= self.most_steps:
                raise TooLarge
            self._slots[step] = LoweredValue(len(self.steps), is_step=True)
            self.steps.append(step)
        return self._slots[step]

    def inline(self, program: ScalarProgram, operands: Sequence[Operand]) -> list[Operand]:
        """Append a program's steps; return its results."""
        return program.evaluate(operands, self.apply, lambda number: number)

    def source(self, source: Source, dtype: str) -> LoweredValue:
        """Return the input for a source."""
        if source not in self._slots:
            self._slots[source] = LoweredValue(len(self.sources), is_step=False)
            self.sources.append(source)
            self.dtypes.append(dtype)
        return self._slots[source]

    def length_value(self, number: Number | SymInt) -> Operand:
        """Return a number that is computed from lengths; small integers become constants of the program."""
        if isinstance(number, Number):
            value = complex(number.value)
            if value.imag == 0 and value.real.is_integer() and stays_constant(int(value.real)):
                return number
        source = LengthValue(number)
        return self.source(source, source.dtype)

    def length(self, number: int) -> Operand:
        """Return an integer that is computed from lengths, as an int64."""
        return self.length_value(number if isinstance(number, SymInt) else Number.of(number, "int64"))

    def build(self, results: Iterable[Operand]) -> ScalarProgram:
        """Return the body's program with the given results."""
        count = len(self.sources)
        order = _gathers_first(self.steps)
        numbers = {number: position for position, number in enumerate(order)}

        def slot(operand: Operand) -> int | Number:
            if isinstance(operand, Number):
                return operand
            return numbers[operand.number] + count if operand.is_step else operand.number

        steps = tuple((self.steps[number][0], tuple(map(slot, self.steps[number][1]))) for number in order)
        return ScalarProgram(tuple(self.dtypes), steps, tuple(map(slot, results)))

    def dtype_of(self, operand: Operand) -> str:
        if isinstance(operand, Number):
            return operand.dtype
        return self.steps[operand.number][0].dtype if operand.is_step else self.dtypes[operand.number]

    def index_value(self, index: Index) -> Operand:
        """Return an index as an int64 value."""
        affine = Index(index.const, tuple(term for term in index.terms if isinstance(term[0], int)))
        computed = [(variable, factor) for variable, factor in index.terms if isinstance(variable, LoweredValue)]
        if affine.terms:
            total: Operand = self.source(LoopIndex(affine), "int64")
        else:
            total = self.length(affine.const)
        for variable, factor in computed:
            scaled: Operand = variable
            if not is_same(factor, 1):
                scaled = self.apply(Scalar("Mul", "int64"), [variable, self.length(factor)])
            is_zero = isinstance(total, Number) and total.value == 0
            total = scaled if is_zero else self.apply(Scalar("Add", "int64"), [total, scaled])
        return total

    def converted(self, value: Operand, dtype: str) -> Operand:
        """Return a value converted to a dtype."""
        return value if self.dtype_of(value) == dtype else self.apply(Scalar("Cast", dtype), [value])


def _gathers_first(steps: Sequence[tuple[Scalar, tuple[Operand, ...]]]) -> list[int]:
    """Return an order of steps in which reads at computed indices are early and adjacent, so that they share a loop."""
    needs = [[x.number for x in operands if isinstance(x, LoweredValue) and x.is_step] for _, operands in steps]
    is_gather = [scalar.name == "Element" for scalar, _ in steps]
    if not any(is_gather):
        return list(range(len(steps)))
    #: For each step, the length of the longest chain of reads on which the step depends.
    depth: list[int] = []
    for number in range(len(steps)):
        depth.append(max((depth[need] + is_gather[need] for need in needs[number]), default=0))
    order: dict[int, None] = {}
    for level in range(max(depth) + 1):
        gathers = [number for number, gather in enumerate(is_gather) if gather and depth[number] == level]
        ahead: set[int] = set()
        stack = [need for number in gathers for need in needs[number]]
        while stack:
            number = stack.pop()
            if number not in ahead and number not in order:
                ahead.add(number)
                stack += needs[number]
        order.update(dict.fromkeys([*sorted(ahead), *gathers]))
    order.update(dict.fromkeys(range(len(steps))))
    return list(order)


Value = TypeVar("Value")

#: Maximum absolute value of an exponent for which a power is compiled to products and roots.
_LARGEST_EXPONENT = 4.5


def power(
    base: Value, exponent: Any, dtype: str, apply: Callable[[Scalar, Sequence[Value | Number]], Value]
) -> Value | None:
    """Return a power of a float as products and roots, applied with `apply`; None if ``pow`` must be used.

    Integer and half-integer exponents are supported. Results for zeros, infinities and NaN equal those of ``pow``.
    """
    doubled = 2 * float(exponent)
    if not 0 < abs(doubled) <= 2 * _LARGEST_EXPONENT or doubled != int(doubled):
        return None
    whole, half = divmod(abs(int(doubled)), 2)
    mul = Scalar("Mul", dtype)
    if half:
        # The square root of -0 is -0, unlike other powers of -0, so add 0 to turn -0 into 0.
        base = apply(Scalar("Add", dtype), [base, Number.of(0, dtype)])
    factors: list[Value] = [base] * whole
    if half:
        factors.append(apply(Scalar("Sqrt", dtype), [base]))
    result = factors[0]
    for factor in factors[1:]:
        result = apply(mul, [result, factor])
    if exponent < 0:
        result = apply(Scalar("Inv", dtype), [result])
    if half:
        # The square root of minus infinity is NaN, but the powers of minus infinity are not.
        is_lowest = apply(Scalar("EQ", "bool"), [base, Number.of(-np.inf, dtype)])
        limit = Number.of(np.inf if exponent > 0 else 0, dtype)
        result = apply(Scalar("Switch", dtype), [is_lowest, limit, result])
    return result

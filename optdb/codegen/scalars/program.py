"""Scalar programs: sequences of scalar ops. ``expressions`` contains the OpenCL C for each op."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np


@dataclass(frozen=True)
class Scalar:
    """A scalar op: its name in ``expressions``, the dtype of its result, and properties (``op["openlow"]``)."""

    name: str
    dtype: str
    properties: tuple[tuple[str, bool | int | float | str], ...] = ()

    def __getitem__(self, name: str) -> bool | int | float | str:
        return dict(self.properties)[name]


@dataclass(frozen=True)
class Number:
    """A constant of a program; constants are compared bitwise."""

    dtype: str
    raw: bytes

    @classmethod
    def of(cls, value: Any, dtype: str) -> Number:
        """Return the constant for a value."""
        return cls(dtype, np.asarray(value, dtype).tobytes())

    @property
    def value(self) -> Any:
        """The value, as a NumPy scalar."""
        return np.frombuffer(self.raw, self.dtype)[0]


#: Absolute values of constants for which compilers simplify products, quotients and powers.
_COMMON = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
#: Scalar ops that do not become slower if a constant operand is unknown at compile time.
_TAKING_ARGUMENTS = frozenset(
    {*("Add", "Mul", "Sub", "TrueDiv", "Pow", "Maximum"), *("Minimum", "Switch", "LT", "LE", "GT", "GE")}
)

#: The index of a value in the list of all inputs and then all results of steps, or a constant.
Slot = int | Number
#: A scalar op, and its inputs.
Application = tuple[Scalar, tuple[Slot, ...]]
#: The type of the values with which `ScalarProgram.evaluate` computes.
Value = TypeVar("Value")


class ScalarProgram:
    """A sequence of scalar ops.

    `steps` are applications of scalars to inputs and results of earlier steps. If `takes_arguments` is true, kernels
    take the program's numbers as arguments (`with_arguments`). Equality of programs ignores `takes_arguments`.
    """

    def __init__(
        self,
        dtypes: tuple[str, ...],
        steps: tuple[Application, ...],
        results: tuple[Slot, ...],
        takes_arguments: bool = False,
    ) -> None:
        self.takes_arguments = takes_arguments
        self.dtypes = dtypes
        self.steps = steps
        self.results = results
        self._key = dtypes, steps, results
        self._hash = hash(self._key)

    @classmethod
    def of(cls, scalar: Scalar, dtypes: Sequence[str]) -> ScalarProgram:
        """Return the program that applies one scalar to its inputs."""
        return cls(tuple(dtypes), ((scalar, tuple(range(len(dtypes)))),), (len(dtypes),))

    @classmethod
    def copying(cls, *dtypes: str) -> ScalarProgram:
        """Return the program that returns its inputs, which have the given dtypes."""
        return cls(dtypes, (), tuple(range(len(dtypes))))

    @property
    def nin(self) -> int:
        return len(self.dtypes)

    @property
    def out_dtypes(self) -> tuple[str, ...]:
        dtypes = [*self.dtypes, *[scalar.dtype for scalar, _ in self.steps]]
        return tuple([slot.dtype if isinstance(slot, Number) else dtypes[slot] for slot in self.results])

    def __str__(self) -> str:
        counts = Counter(scalar.name.lower() for scalar, _ in self.steps)
        names = [name if n == 1 else f"{n} {name}" for name, n in counts.items()]
        return f"Program{{{', '.join(names)}}}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, ScalarProgram) or self._hash != other._hash:
            return False
        return self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        # The hash is left out, because hashes of strings differ between processes.
        return type(self), (self.dtypes, self.steps, self.results, self.takes_arguments)

    def evaluate(
        self,
        inputs: Iterable[Value],
        apply: Callable[[Scalar, Sequence[Value]], Value],
        constant: Callable[[Number], Value],
    ) -> list[Value]:
        """Interpret the program over values of any type, and return the results.

        `apply` returns the result of a step, given its scalar and inputs; `constant` returns the value of a constant.
        """
        values = list(inputs)

        def value(slot: Slot) -> Value:
            return constant(slot) if isinstance(slot, Number) else values[slot]

        for scalar, slots in self.steps:
            values.append(apply(scalar, [value(slot) for slot in slots]))
        return [value(slot) for slot in self.results]

    def pruned(self) -> tuple[ScalarProgram, tuple[int, ...]]:
        """Return the program without unused steps and inputs, and the indexes of the inputs that remain."""
        count = len(self.dtypes)
        needed = {slot for slot in self.results if not isinstance(slot, Number)}
        for number in reversed(range(count, count + len(self.steps))):
            if number in needed:
                needed.update(slot for slot in self.steps[number - count][1] if not isinstance(slot, Number))
        moved = {slot: number for number, slot in enumerate(sorted(needed))}

        def renumbered(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
            return tuple([slot if isinstance(slot, Number) else moved[slot] for slot in slots])

        steps = [(scalar, renumbered(slots)) for i, (scalar, slots) in enumerate(self.steps, count) if i in needed]
        kept = tuple([number for number in range(count) if number in needed])
        dtypes = tuple([self.dtypes[number] for number in kept])
        return ScalarProgram(dtypes, tuple(steps), renumbered(self.results)), kept

    def with_arguments(self) -> tuple[ScalarProgram, tuple[Number, ...]]:
        """Turn constant factors, addends, bounds and exponents into inputs; return the program and the inputs' values.

        Programs that differ only in these numbers then share a kernel. Numbers that a compiler can exploit remain in
        the program: small numbers such as 1 and 2, integers, and operands of scalar ops that are not in
        `_TAKING_ARGUMENTS`.
        """
        arguments: dict[Number, int] = {}
        count = len(self.dtypes)
        for scalar, slots in self.steps:
            for number in slots if scalar.name in _TAKING_ARGUMENTS else ():
                if isinstance(number, Number) and number.dtype.startswith("float") and abs(number.value) not in _COMMON:
                    arguments.setdefault(number, count + len(arguments))
        if not arguments:
            return self, ()

        def moved(slot: Slot, takes: bool) -> Slot:
            if isinstance(slot, Number):
                return arguments.get(slot, slot) if takes else slot
            return slot if slot < count else slot + len(arguments)

        steps = [
            (scalar, tuple([moved(slot, scalar.name in _TAKING_ARGUMENTS) for slot in slots]))
            for scalar, slots in self.steps
        ]
        dtypes = (*self.dtypes, *[number.dtype for number in arguments])
        results = tuple([moved(slot, takes=False) for slot in self.results])
        return ScalarProgram(dtypes, tuple(steps), results), tuple(arguments)


class ProgramBuilder:
    """Builds a program, with common-subexpression elimination; the first slots are the inputs."""

    def __init__(self, dtypes: Sequence[str]) -> None:
        self._dtypes = tuple(dtypes)
        self._steps: list[Application] = []
        self._slots: dict[Application, int] = {}

    def apply(self, scalar: Scalar, slots: Sequence[Slot]) -> Slot:
        """Append a step that applies a scalar op, and return the slot of its result.

        If the op squares a float, the step uses `Sqr` instead.
        """
        if scalar.name == "Pow" and self._is_square(scalar.dtype, *slots):
            scalar, slots = Scalar("Sqr", scalar.dtype), slots[:1]
        step = scalar, tuple(slots)
        if step not in self._slots:
            self._slots[step] = len(self._dtypes) + len(self._steps)
            self._steps.append(step)
        return self._slots[step]

    def _is_square(self, dtype: str, base: Slot, exponent: Slot) -> bool:
        if not isinstance(exponent, Number) or exponent.value != 2 or not dtype.startswith("float"):
            return False
        return self._dtype_of(base) == dtype

    def _dtype_of(self, slot: Slot) -> str:
        if isinstance(slot, Number):
            return slot.dtype
        count = len(self._dtypes)
        return self._dtypes[slot] if slot < count else self._steps[slot - count][0].dtype

    def inline(self, program: ScalarProgram, slots: Sequence[Slot]) -> list[Slot]:
        """Append all steps of a program, and return the slots of the program's outputs."""
        return program.evaluate(slots, self.apply, lambda number: number)

    def build(self, results: Sequence[Slot]) -> ScalarProgram:
        return ScalarProgram(self._dtypes, tuple(self._steps), tuple(results))


def program_of_graph(
    dtypes: Sequence[str],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    nodes: Iterable[Any],
    program_of: Callable[[Any, Sequence[str]], ScalarProgram],
) -> ScalarProgram:
    """Translate a graph of the host framework's scalar ops to a program.

    Variables have a ``type.dtype``, and constants also have ``data``; nodes are in topological order, and have an
    ``op``, ``inputs`` and ``outputs``. `program_of` returns the program of an op for inputs with the given dtypes.
    """
    builder = ProgramBuilder(dtypes)
    values: dict[Any, tuple[Slot, str]] = dict(zip(inputs, enumerate(dtypes), strict=True))

    def value_of(var: Any) -> tuple[Slot, str]:
        if var not in values and hasattr(var, "data"):
            return Number.of(var.data, var.type.dtype), var.type.dtype
        return values[var]

    for node in nodes:
        operands = [value_of(var) for var in node.inputs]
        program = program_of(node.op, [dtype for _, dtype in operands])
        results = builder.inline(program, [slot for slot, _ in operands])
        values.update(zip(node.outputs, zip(results, program.out_dtypes, strict=True), strict=True))
    return builder.build([value_of(var)[0] for var in outputs])

"""Evaluates the sizes and guards of a trace for a call: the counterpart of ``optdb.runtime.sizes``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.runtime.exported.errors import ShapeError
from optdb.runtime.exported.fields import LIMIT, is_dtype, is_reference
from optdb.runtime.sizes import ARITHMETIC, COMPARISONS
from optdb.runtime.tables import host_scalar

#: How deep an expression is written out in an error.
_DEEP = 4


@dataclass(frozen=True, eq=False)
class Call:
    """The inputs of the rules: arguments by their places, and the device's compute units."""

    arguments: Sequence[np.ndarray]
    compute_units: int


@dataclass(frozen=True)
class GuardSet:
    """The expressions of one trace's sizes, and the guards under which it holds.

    Entries and guards are as in the manifest, and checked; names are those of the arguments.
    """

    entries: Sequence[Sequence[Any]]
    guards: Sequence[Sequence[Any]]
    names: Sequence[str]

    def arguments_behind(self, operands: Iterable[Any]) -> frozenset[int]:
        """Return the arguments whose values some operands depend on."""
        needed = set(_numbers_of(operands))
        arguments: set[int] = set()
        # Entries depend on those before them alone.
        for number in range(len(self.entries) - 1, -1, -1):
            if number in needed:
                word, *rest = self.entries[number]
                needed.update(_numbers_of(rest))
                if word == "value":
                    arguments.add(rest[0])
        return frozenset(arguments)

    def value_guards(self, arguments: frozenset[int]) -> ValueGuards:
        """Return the entries and guards that depend on the values of some arguments, to be evaluated in each call."""
        entries: dict[int, Sequence[Any]] = {}
        for number, entry in enumerate(self.entries):
            if (entry[0] == "value" and entry[1] in arguments) or any(n in entries for n in _numbers_of(entry)):
                entries[number] = entry
        return ValueGuards(entries, [guard for guard in self.guards if any(n in entries for n in _numbers_of(guard))])

    def values(self, call: Call) -> Values:
        """Return all sizes of a call.

        One that cannot be worked out, as where shapes are 0, is none: guards may say that it is not needed.
        """
        values = Values([None] * len(self.entries))
        values.work_out(enumerate(self.entries), call)
        return values

    def broken(self, values: Values) -> str | None:
        """Return the first guard, in words, that does not hold; None if the trace holds."""
        for guard in self.guards:
            if not values.holds(guard):
                word, left, right = guard
                return f"{self.described(left)} {word} {self.described(right)}"
        return None

    def described(self, operand: Any, deep: int = _DEEP) -> str:
        """Return an operand in words."""
        if not is_reference(operand):
            return str(operand)
        word, *operands = self.entries[int(operand[1:])]
        if word == "units":
            return "the device's compute units"
        if word == "axis":
            return f"{self.names[operands[0]]}.shape[{operands[1]}]"
        if word == "value":
            return self.names[operands[0]]
        if not deep:
            return "..."
        is_arithmetic = not is_dtype(operands[0])
        words = [self.described(x, deep - 1) for x in (operands if is_arithmetic else operands[1:])]
        if not is_arithmetic or word in ("max", "min"):
            return f"{word}({', '.join(words)})"
        return f"ceil({words[0]} / {words[1]})" if word == "ceil" else f"({words[0]} {word} {words[1]})"


class Values(list[Any]):
    """The sizes of a call, by the numbers of their entries; None where that cannot be worked out."""

    def work_out(self, entries: Iterable[tuple[int, Sequence[Any]]], call: Call) -> None:
        """Compute some of the sizes, in order."""
        for number, entry in entries:
            try:
                value = self._worked_out(entry, call)
            except (ArithmeticError, TypeError, ValueError):
                value = None
            self[number] = None if isinstance(value, int) and not -LIMIT <= value < LIMIT else value

    def _worked_out(self, entry: Sequence[Any], call: Call) -> Any:
        match entry:
            case ["units"]:
                return call.compute_units
            case ["axis", argument, axis]:
                return int(call.arguments[argument].shape[axis])
            case ["value", argument]:
                value = call.arguments[argument]
            case [word, dtype, *operands] if is_dtype(dtype):
                value = host_scalar(word, dtype, *map(self.value, operands))
            case [word, *operands]:
                return ARITHMETIC[word](*map(self.number, operands))
        return int(value) if value.dtype.kind in "iub" else value[()]

    def holds(self, guard: Sequence[Any]) -> bool:
        """Tell whether a guard is true."""
        word, left, right = guard
        a, b = self.value(left), self.value(right)
        if a is None or b is None:
            return False
        try:
            return bool(COMPARISONS[word](a, b))
        except TypeError:
            # Of complex numbers, none is the smaller one.
            return False

    def value(self, operand: Any) -> Any:
        """Return the value of an operand: a number, or an entry; infinity is written as a text."""
        if not isinstance(operand, str):
            return operand
        return self[int(operand[1:])] if operand[0] == "$" else float(operand)

    def number(self, operand: Any) -> int:
        """Return a whole number; raise ShapeError if it is none."""
        value = self.value(operand)
        if not isinstance(value, int):
            raise ShapeError(f"{value!r} stands where a whole number is wanted")
        return value

    def numbers(self, operands: Sequence[Any]) -> tuple[int, ...]:
        """Return whole numbers."""
        return tuple([self.number(operand) for operand in operands])


@dataclass(frozen=True)
class ValueGuards:
    """Sizes and guards that depend on values of arguments, such as a rate, and so are worked out at each call."""

    entries: dict[int, Sequence[Any]]
    guards: list[Sequence[Any]]

    def has(self, operand: Any) -> bool:
        """Tell whether an operand is one of these sizes."""
        return is_reference(operand) and int(operand[1:]) in self.entries

    def __bool__(self) -> bool:
        return bool(self.entries)

    def values(self, before: Values, call: Call) -> Values | None:
        """Return the sizes of another call that differs from one in these numbers alone; None if a guard breaks."""
        values = Values(before)
        values.work_out(self.entries.items(), call)
        return values if all(map(values.holds, self.guards)) else None


def _numbers_of(operands: Iterable[Any]) -> Iterator[int]:
    """Return the numbers of the entries that operands name."""
    return (int(x[1:]) for x in operands if is_reference(x))

"""Works out the sizes of a call, and tells whether a trace holds for it: the other side of ``optdb.runtime.sizes``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.runtime.exported.archive import Archive
from optdb.runtime.exported.errors import ShapeError
from optdb.runtime.exported.fields import LIMIT, is_dtype, is_index, is_reference, is_whole, short
from optdb.runtime.host_scalar_ops import HOST_SCALAR_OPS, host_scalar
from optdb.runtime.sizes import ARITHMETIC, COMPARISONS

__all__ = ["Call", "GuardSet", "ValueGuards", "Values"]

#: How deep an expression is written out in an error.
_DEEP = 4


@dataclass(frozen=True, eq=False)
class Call:
    """What a call gives to the rules: arguments by their places, and the device's compute units."""

    arguments: Sequence[np.ndarray]
    compute_units: int


class GuardSet:
    """How the sizes of one trace are worked out, and for which it holds.

    Parameters
    ----------
    archive : Archive
        The file, for errors.
    entries, guards : list
        As the manifest has them.
    names : sequence of str
        What the arguments are called.
    ndims : sequence of int
        How many dimensions they have.
    where : str
        Where the trace stands in the manifest.

    Raises
    ------
    FileError
        If they are not valid.
    """

    def __init__(
        self, archive: Archive, entries: list, guards: list, names: Sequence[str], ndims: Sequence[int], where: str
    ) -> None:
        self._names = names
        for number, entry in enumerate(entries):
            if not _is_entry(entry, number, ndims):
                raise archive.wrong(f"is not valid: {where}.entries[{number}] is {short(entry)}")
        for number, guard in enumerate(guards):
            if not _is_guard(guard, len(entries)):
                raise archive.wrong(f"is not valid: {where}.guards[{number}] is {short(guard)}")
        self._entries = entries
        self._guards = guards

    def arguments_behind(self, operands: Iterable[Any]) -> frozenset[int]:
        """Return the arguments whose values some operands depend on."""
        needed = set(_numbers_of(operands))
        found: set[int] = set()
        # Entries depend on those before them alone.
        for number in range(len(self) - 1, -1, -1):
            if number in needed:
                word, *rest = self._entries[number]
                needed.update(_numbers_of(rest))
                if word == "value":
                    found.add(rest[0])
        return frozenset(found)

    def value_guards(self, arguments: frozenset[int]) -> ValueGuards:
        """Return what depends on the values of some arguments, to be worked out anew while all else stays."""
        entries: dict[int, list] = {}
        for number, entry in enumerate(self._entries):
            if (entry[0] == "value" and entry[1] in arguments) or any(n in entries for n in _numbers_of(entry)):
                entries[number] = entry
        return ValueGuards(entries, [guard for guard in self._guards if any(n in entries for n in _numbers_of(guard))])

    def __len__(self) -> int:
        return len(self._entries)

    def values(self, call: Call) -> Values:
        """Return all sizes of a call.

        One that cannot be worked out, as where shapes are 0, is none: guards may say that it is not needed.
        """
        values = Values([None] * len(self))
        values.work_out(enumerate(self._entries), call)
        return values

    def broken(self, values: Values) -> str | None:
        """Return the first guard, in words, that does not hold; None if the trace holds."""
        for guard in self._guards:
            if not values.holds(guard):
                word, one, other = guard
                return f"{self.described(one)} {word} {self.described(other)}"
        return None

    def described(self, operand: Any, deep: int = _DEEP) -> str:
        """Return an operand in words."""
        if not is_reference(operand):
            return str(operand)
        word, *operands = self._entries[int(operand[1:])]
        if word == "units":
            return "the device's compute units"
        if word == "axis":
            return f"{self._names[operands[0]]}.shape[{operands[1]}]"
        if word == "value":
            return self._names[operands[0]]
        if not deep:
            return "..."
        is_arithmetic = not is_dtype(operands[0])
        words = [self.described(x, deep - 1) for x in (operands if is_arithmetic else operands[1:])]
        if word == "ceil" and is_arithmetic:
            return f"ceil({words[0]} / {words[1]})"
        return (
            f"({words[0]} {word} {words[1]})" if word in ("+", "-", "*", "//", "%") else f"{word}({', '.join(words)})"
        )


class Values(list[Any]):
    """The sizes of a call, by the numbers of their entries; None where that cannot be worked out."""

    def work_out(self, entries: Iterable[tuple[int, list[Any]]], call: Call) -> None:
        """Set some of them, in order."""
        for number, entry in entries:
            try:
                value = self._worked_out(entry, call)
            except (ArithmeticError, TypeError, ValueError):
                value = None
            self[number] = None if isinstance(value, int) and not -LIMIT <= value < LIMIT else value

    def _worked_out(self, entry: list[Any], call: Call) -> Any:
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

    def holds(self, guard: list[Any]) -> bool:
        """Tell whether a guard is true."""
        word, one, other = guard
        a, b = self.value(one), self.value(other)
        if a is None or b is None:
            return False
        try:
            return bool(COMPARISONS[word](a, b))
        except TypeError:
            # Of complex numbers, none is the smaller one.
            return False

    def value(self, operand: Any) -> Any:
        """Return what an operand is: a number, or an entry; infinity is written as a text."""
        if not isinstance(operand, str):
            return operand
        return self[int(operand[1:])] if operand[0] == "$" else float(operand)

    def number(self, operand: Any) -> int:
        """Return a whole number.

        Raises
        ------
        ShapeError
            If it is none.
        """
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

    entries: dict[int, list[Any]]
    guards: list[list[Any]]

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


def _is_entry(entry: Any, number: int, ndims: Sequence[int]) -> bool:
    """Tell whether a value says how to work out the entry of a number, from arguments and the entries before it."""
    match entry:
        case ["units"]:
            return True
        case ["axis", argument, axis]:
            return is_index(argument, len(ndims)) and is_index(axis, ndims[argument])
        case ["value", argument]:
            return is_index(argument, len(ndims)) and not ndims[argument]
        case [str(word), dtype, *operands] if word in HOST_SCALAR_OPS and is_dtype(dtype):
            return len(operands) in (1, 2) and all(_is_operand(x, number, True) for x in operands)
        case [str(word), one, other] if word in ARITHMETIC:
            return _is_operand(one, number) and _is_operand(other, number)
    return False


def _is_guard(guard: Any, count: int) -> bool:
    """Tell whether a value compares two operands, of so many entries."""
    match guard:
        case [str(word), one, other] if word in COMPARISONS:
            return _is_operand(one, count, True) and _is_operand(other, count, True)
    return False


def _is_operand(x: Any, below: int, figures: bool = False) -> bool:
    """Tell whether a value is a number, or names an entry that comes before."""
    if is_reference(x):
        return int(x[1:]) < below
    return is_whole(x) or (figures and isinstance(x, float | bool))


def _numbers_of(operands: Iterable[Any]) -> Iterator[int]:
    """Return the numbers of the entries that operands name."""
    return (int(x[1:]) for x in operands if is_reference(x))

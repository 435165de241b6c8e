"""Works out the sizes of a call, and tells whether a trace holds for it: the other side of ``optdb.runtime.sizes``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from optdb.runtime.exported.archive import DTYPES, Archive
from optdb.runtime.exported.errors import ShapeError
from optdb.runtime.exported.fields import LIMIT, is_reference, is_whole, short
from optdb.runtime.host_scalar_ops import HOST_SCALAR_OPS, host_scalar
from optdb.runtime.sizes import ARITHMETIC, COMPARISONS

__all__ = ["Call", "GuardSet", "ValueGuards", "Values"]

#: How deep an expression is written out in an error.
_DEEP = 4


class Call:
    """What a call gives to the rules.

    Parameters
    ----------
    arguments : sequence of numpy.ndarray
        By their places.
    compute_units : int
        The device's compute units.
    """

    def __init__(self, arguments: Sequence[np.ndarray], compute_units: int) -> None:
        self.arguments = arguments
        self.compute_units = compute_units


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
        self._ndims = ndims
        for number, entry in enumerate(entries):
            if not self._is_entry(entry, number):
                raise archive.wrong(f"is not valid: {where}.entries[{number}] is {short(entry)}")
        for number, guard in enumerate(guards):
            if not self._is_guard(guard, len(entries)):
                raise archive.wrong(f"is not valid: {where}.guards[{number}] is {short(guard)}")
        self._entries = entries
        self._guards = guards
        self._steps = [_step(entry) for entry in entries]

    def arguments_behind(self, operands: Iterable[Any]) -> frozenset[int]:
        """Return the arguments whose values some operands depend on."""
        needed = bytearray(len(self._entries))
        for operand in operands:
            if is_reference(operand):
                needed[int(operand[1:])] = True
        found: set[int] = set()
        # Entries depend on those before them alone.
        for number in range(len(needed) - 1, -1, -1):
            if not needed[number]:
                continue
            word, *rest = self._entries[number]
            if word == "value":
                found.add(rest[0])
            for operand in rest:
                if is_reference(operand):
                    needed[int(operand[1:])] = True
        return frozenset(found)

    def value_guards(self, arguments: frozenset[int]) -> ValueGuards:
        """Return what depends on the values of some arguments, to be worked out anew while all else stays."""
        depends = bytearray(len(self._entries))
        for number, (word, *rest) in enumerate(self._entries):
            own = word == "value" and rest[0] in arguments
            depends[number] = own or any(is_reference(x) and depends[int(x[1:])] for x in rest)
        steps = [(number, self._steps[number]) for number in range(len(depends)) if depends[number]]
        guards = [guard for guard in self._guards if any(is_reference(x) and depends[int(x[1:])] for x in guard[1:])]
        return ValueGuards(steps, guards, bytes(depends))

    def __len__(self) -> int:
        return len(self._entries)

    def _is_entry(self, entry: Any, number: int) -> bool:
        if not isinstance(entry, list) or not entry or not isinstance(entry[0], str):
            return False
        word, *rest = entry
        if word == "units":
            return not rest
        if word == "axis":
            return len(rest) == 2 and all(map(is_whole, rest)) and self._has_axis(*rest)
        if word == "value":
            return len(rest) == 1 and is_whole(rest[0]) and 0 <= rest[0] < len(self._ndims) and not self._ndims[rest[0]]
        if word in HOST_SCALAR_OPS and _names_dtype(rest):
            return 1 <= len(rest) - 1 <= 2 and all(_is_operand(x, number, True) for x in rest[1:])
        return word in ARITHMETIC and len(rest) == 2 and all(_is_operand(x, number) for x in rest)

    def _has_axis(self, argument: int, axis: int) -> bool:
        return 0 <= argument < len(self._ndims) and 0 <= axis < self._ndims[argument]

    @staticmethod
    def _is_guard(guard: Any, count: int) -> bool:
        if not isinstance(guard, list) or len(guard) != 3 or not isinstance(guard[0], str):
            return False
        return guard[0] in COMPARISONS and all(_is_operand(x, count, True) for x in guard[1:])

    def values(self, call: Call) -> Values:
        """Return all sizes of a call.

        One that cannot be worked out, as where shapes are 0, is none: guards may say that it is not needed.
        """
        found: list[Any] = []
        values = Values(found)
        for number, step in enumerate(self._steps):
            found.append(None)
            values.work_out(number, step, call)
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
        word, *rest = self._entries[int(operand[1:])]
        if word == "units":
            return "the device's compute units"
        if word == "axis":
            return f"{self._names[rest[0]]}.shape[{rest[1]}]"
        if word == "value":
            return self._names[rest[0]]
        if not deep:
            return "..."
        if _names_dtype(rest):
            return f"{word}({', '.join(self.described(x, deep - 1) for x in rest[1:])})"
        one, other = (self.described(x, deep - 1) for x in rest)
        if word == "ceil":
            return f"ceil({one} / {other})"
        return f"{word}({one}, {other})" if word in ("max", "min") else f"({one} {word} {other})"


class Values:
    """The sizes of a call."""

    def __init__(self, found: list[Any]) -> None:
        self._found = found

    def copy(self) -> Values:
        """Return the same sizes once more."""
        return Values(self._found.copy())

    def work_out(self, number: int, step: Callable[[list[Any], Call], Any], call: Call) -> None:
        """Set one; to None if that cannot be worked out."""
        try:
            value = step(self._found, call)
        except (ArithmeticError, TypeError, ValueError):
            value = None
        self._found[number] = None if isinstance(value, int) and not -LIMIT <= value < LIMIT else value

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
        return self._found[int(operand[1:])] if operand[0] == "$" else float(operand)

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


class ValueGuards:
    """Sizes and guards that depend on values of arguments, such as a rate, and so are worked out at each call.

    Parameters
    ----------
    steps : list
        The numbers of entries, and what works each out.
    guards : list
        Those that depend on them.
    depends : bytes
        For each entry, whether it depends on them.
    """

    def __init__(
        self, steps: list[tuple[int, Callable[[list[Any], Call], Any]]], guards: list[list[Any]], depends: bytes
    ) -> None:
        self._steps = steps
        self._guards = guards
        self._depends = depends

    def has(self, operand: Any) -> bool:
        """Tell whether an operand is one of these sizes."""
        return is_reference(operand) and bool(self._depends[int(operand[1:])])

    def __bool__(self) -> bool:
        return bool(self._steps)

    def values(self, before: Values, call: Call) -> Values | None:
        """Return the sizes of another call that differs from one in these numbers alone; None if a guard breaks."""
        values = before.copy()
        for number, step in self._steps:
            values.work_out(number, step, call)
        return values if all(values.holds(guard) for guard in self._guards) else None


def _number_in(x: np.ndarray) -> Any:
    """Return the number that an argument is; whole ones are Python's."""
    return int(x) if x.dtype.kind in "iub" else x[()]


def _is_operand(x: Any, below: int, figures: bool = False) -> bool:
    """Tell whether a value is a number, or names an entry that comes before."""
    if is_reference(x):
        return int(x[1:]) < below
    return is_whole(x) or (figures and isinstance(x, float | bool))


def _names_dtype(operands: Sequence[Any]) -> bool:
    """Tell whether operands are those of a host's scalar op: of arithmetic, there is another ``ceil``."""
    return bool(operands) and isinstance(operands[0], str) and operands[0] in DTYPES


def _step(entry: list) -> Callable[[list[Any], Call], Any]:
    """Return what works an entry out from those before it."""
    word, *rest = entry
    if word == "units":
        return lambda found, call: call.compute_units
    if word == "axis":
        argument, axis = rest
        return lambda found, call: int(call.arguments[argument].shape[axis])
    if word == "value":
        return lambda found, call: _number_in(call.arguments[rest[0]])
    if not _names_dtype(rest):
        return _whole_step(ARITHMETIC[word], *map(_getter, rest))
    dtype, *operands = rest
    getters = [_getter(x) for x in operands]

    def work_out(found: list[Any], call: Call) -> Any:
        result = host_scalar(word, dtype, *[get(found) for get in getters])
        return int(result) if result.dtype.kind in "iub" else result

    return work_out


def _whole_step(function: Callable[[Any, Any], Any], one: Any, other: Any) -> Callable[[list[Any], Call], Any]:
    def work_out(found: list[Any], call: Call) -> Any:
        a, b = one(found), other(found)
        if not (isinstance(a, int) and isinstance(b, int)):
            raise TypeError("it is no whole number")
        return function(a, b)

    return work_out


def _getter(operand: Any) -> Callable[[list[Any]], Any]:
    if isinstance(operand, str):
        number = int(operand[1:])
        return lambda found: found[number]
    return lambda found: operand

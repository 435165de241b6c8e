"""Evaluates a trace's sizes and guards for a call; ``optdb.runtime.sizes`` records them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from optdb.runtime.errors import ShapeError
from optdb.runtime.expressions import (
    ARITHMETIC,
    COMPARISONS,
    ArgumentNumber,
    Arithmetic,
    AxisLength,
    ComputeUnits,
    Entry,
    Guard,
    HostScalar,
    Ref,
    host_scalar,
    references,
)
from optdb.runtime.records import LIMIT

#: The maximum depth of an expression in an error message.
_DEEP = 4


@dataclass(frozen=True, eq=False)
class Call:
    """The inputs of sizes and guards: host or device arrays by position, and the device's number of compute units."""

    arguments: Sequence[Any]
    compute_units: int


@dataclass(frozen=True)
class GuardSet:
    """The guards of one trace, and the expressions for its sizes; messages refer to the arguments by `names`."""

    entries: Sequence[Entry]
    guards: Sequence[Guard]
    names: Sequence[str]

    def arguments_behind(self, operands: Iterable[Any]) -> frozenset[int]:
        """Return the positions of the arguments whose values the operands depend on."""
        needed = set(references(operands))
        arguments: set[int] = set()
        # Entries depend only on earlier entries.
        for number in range(len(self.entries) - 1, -1, -1):
            if number in needed:
                entry = self.entries[number]
                needed.update(references(entry.operands))
                if isinstance(entry, ArgumentNumber):
                    arguments.add(entry.argument)
        return frozenset(arguments)

    def value_guards(self, arguments: frozenset[int]) -> ValueGuards:
        """Return the entries and guards that depend on the values of the given arguments."""
        entries: dict[int, Entry] = {}
        for number, entry in enumerate(self.entries):
            is_free = isinstance(entry, ArgumentNumber) and entry.argument in arguments
            if is_free or not entries.keys().isdisjoint(references(entry.operands)):
                entries[number] = entry
        guards = [guard for guard in self.guards if not entries.keys().isdisjoint(references(guard.operands))]
        return ValueGuards(entries, guards)

    def values(self, call: Call) -> Values:
        """Return all sizes for a call; a size that cannot be computed is None, because it may not be needed."""
        values = Values([None] * len(self.entries))
        values.work_out(enumerate(self.entries), call)
        return values

    def broken(self, values: Values) -> str | None:
        """Describe the first guard that fails; return None if all guards hold."""
        for guard in self.guards:
            if not values.holds(guard):
                return f"{self.described(guard.left)} {guard.op} {self.described(guard.right)}"
        return None

    def described(self, operand: Any, deep: int = _DEEP) -> str:
        """Return a description of an operand."""
        if not isinstance(operand, Ref):
            return str(operand)
        entry = self.entries[operand.number]
        match entry:
            case ComputeUnits():
                return "the device's compute units"
            case AxisLength():
                return f"{self.names[entry.argument]}.shape[{entry.axis}]"
            case ArgumentNumber():
                return self.names[entry.argument]
        if not deep:
            return "..."
        words = [self.described(x, deep - 1) for x in entry.operands]
        if isinstance(entry, HostScalar) or entry.op in ("max", "min"):
            return f"{entry.op}({', '.join(words)})"
        return f"ceil({words[0]} / {words[1]})" if entry.op == "ceil" else f"({words[0]} {entry.op} {words[1]})"


class Values(list[Any]):
    """The sizes for a call, indexed by entry number; None for a size that cannot be computed."""

    def work_out(self, entries: Iterable[tuple[int, Entry]], call: Call) -> None:
        """Compute the sizes that entries define; each entry comes with its number."""
        for number, entry in entries:
            try:
                value = self._worked_out(entry, call)
            except (ArithmeticError, TypeError, ValueError):
                value = None
            self[number] = None if isinstance(value, int) and not -LIMIT <= value < LIMIT else value

    def _worked_out(self, entry: Entry, call: Call) -> Any:
        match entry:
            case ComputeUnits():
                return call.compute_units
            case AxisLength():
                return int(call.arguments[entry.argument].shape[entry.axis])
            case Arithmetic():
                return ARITHMETIC[entry.op](self.number(entry.left), self.number(entry.right))
            case HostScalar():
                value = host_scalar(entry.op, entry.dtype, *map(self.value, entry.operands))
            case ArgumentNumber():
                value = call.arguments[entry.argument]
        return int(value) if value.dtype.kind in "iub" else value[()]

    def holds(self, guard: Guard) -> bool:
        """Return whether a guard is true."""
        a, b = self.value(guard.left), self.value(guard.right)
        if a is None or b is None:
            return False
        try:
            return bool(COMPARISONS[guard.op](a, b))
        except TypeError:
            # Complex numbers have no order.
            return False

    def value(self, operand: Any) -> Any:
        """Return the value of an operand, which is a number or a reference to an entry."""
        return self[operand.number] if isinstance(operand, Ref) else operand

    def number(self, operand: Any) -> int:
        """Return an operand's value; raise ShapeError if it is not an integer."""
        value = self.value(operand)
        if not isinstance(value, int):
            raise ShapeError(f"{value!r} is not an integer")
        return value

    def numbers(self, operands: Sequence[Any]) -> tuple[int, ...]:
        """Return the values of operands; raise ShapeError if one is not an integer."""
        return tuple([self.number(operand) for operand in operands])


@dataclass(frozen=True)
class ValueGuards:
    """Sizes and guards that depend on values of arguments, such as a learning rate, and are evaluated in each call."""

    entries: dict[int, Entry]
    guards: list[Guard]

    def has(self, operand: Any) -> bool:
        """Return whether an operand refers to a size in `entries`."""
        return isinstance(operand, Ref) and operand.number in self.entries

    def __bool__(self) -> bool:
        return bool(self.entries)

    def values(self, before: Values, call: Call) -> Values | None:
        """Copy the sizes in `before`, recompute `entries` for a call, and return the result; None if a guard fails."""
        values = Values(before)
        values.work_out(self.entries.items(), call)
        return values if all(map(values.holds, self.guards)) else None

"""Records for the expressions that compute a trace's sizes, and for the guards under which the trace is valid.

An *entry* computes one size; a number in a trace is plain, or a `Ref` to an entry. ``sizes`` creates entries while a
function is traced; ``exported.rules`` evaluates them for a call.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optdb.runtime.records import Members, Record, Where, choice, dtype, is_whole, list_of, one_of, saved

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "ceil": lambda one, other: -(-one // other),
    "max": max,
    "min": min,
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
}
#: Maps names to functions that compute a number from one or two numbers.
HOST_SCALAR_OPS: dict[str, Callable[..., Any]] = {
    "cast": np.positive,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "true_div": np.true_divide,
    "int_div": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "neg": np.negative,
    "abs": np.absolute,
    "inv": np.reciprocal,
    "sqr": np.square,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "floor": np.floor,
    "ceil": np.ceil,
}


def host_scalar(name: str, dtype: str, *values: Any) -> Any:
    """Cast values to a dtype and apply one of `HOST_SCALAR_OPS` to them."""
    with np.errstate(all="ignore"):
        operands = [np.asarray(value).astype(dtype) for value in values]
        return np.asarray(HOST_SCALAR_OPS[name](*operands)).astype(dtype)[()]


_REFERENCE = re.compile(r"\$(0|[1-9]\d{0,8})\Z", re.ASCII)
_NOT_FINITE = ("inf", "-inf", "nan")


@dataclass(frozen=True, slots=True)
class Ref(Record):
    """A reference to an entry, written in JSON as a string such as ``"$7"``."""

    number: int

    @classmethod
    def parse(cls, value: Any, where: Where) -> Ref:
        if isinstance(value, str) and _REFERENCE.match(value):
            number = int(value[1:])
            if number < len(where.before("entries")):
                return cls(number)
        raise where.wrong("a number, or a reference to an earlier entry", value)

    def to_json(self, members: Members) -> Any:
        return str(self)

    def __str__(self) -> str:
        return f"${self.number}"


def size(value: Any, where: Where) -> int | Ref:
    """Parse an integer or a reference."""
    return value if is_whole(value) else Ref.parse(value, where)


def number(value: Any, where: Where) -> Any:
    """Parse a number of any kind or a reference; non-finite numbers are written as strings."""
    if isinstance(value, float | bool):
        return value
    return float(value) if isinstance(value, str) and value in _NOT_FINITE else size(value, where)


sizes = list_of(size, "integers and references to entries")
numbers = list_of(number, "numbers and references to entries")


def references(operands: Iterable[Any]) -> Iterator[int]:
    """Yield the index of each entry that the operands refer to."""
    return (operand.number for operand in operands if isinstance(operand, Ref))


def argument(value: Any, where: Where) -> int:
    """Parse the position of a function argument."""
    count = len(where.before("signature").arguments)
    if not is_whole(value) or not 0 <= value < count:
        raise where.wrong(f"the number of one of {count} arguments", value)
    return value


def _ndim(number: int, where: Where) -> int:
    return len(where.before("signature").arguments[number].broadcastable)


@dataclass(frozen=True, slots=True)
class AxisLength(Record):
    """The length of an argument's axis."""

    kind: ClassVar[str] = "axis"
    operands: ClassVar[tuple[Any, ...]] = ()

    argument: int = saved(argument)
    axis: int = saved(lambda value, where: value)

    def check(self, where: Where) -> None:
        ndim = _ndim(self.argument, where)
        if not is_whole(self.axis) or not 0 <= self.axis < ndim:
            raise where.at("axis").wrong(f"one of {ndim} axes", self.axis)


@dataclass(frozen=True, slots=True)
class ArgumentNumber(Record):
    """The value of a scalar argument."""

    kind: ClassVar[str] = "argument"
    operands: ClassVar[tuple[Any, ...]] = ()

    argument: int = saved(argument)

    def check(self, where: Where) -> None:
        if _ndim(self.argument, where):
            raise where.at("argument").wrong("an argument without axes", self.argument)


@dataclass(frozen=True, slots=True)
class ComputeUnits(Record):
    """The device's number of compute units."""

    kind: ClassVar[str] = "compute_units"
    operands: ClassVar[tuple[Any, ...]] = ()


@dataclass(frozen=True, slots=True)
class Arithmetic(Record):
    """An operation of `ARITHMETIC` on two integers."""

    kind: ClassVar[str] = "arithmetic"

    op: str = saved(choice(ARITHMETIC))
    left: int | Ref = saved(size)
    right: int | Ref = saved(size)

    @property
    def operands(self) -> tuple[int | Ref, int | Ref]:
        return self.left, self.right


@dataclass(frozen=True, slots=True)
class HostScalar(Record):
    """An operation of `HOST_SCALAR_OPS` on one or two numbers, computed in a dtype."""

    kind: ClassVar[str] = "scalar"

    op: str = saved(choice(HOST_SCALAR_OPS))
    dtype: str = saved(dtype)
    operands: tuple[Any, ...] = saved(numbers)

    def check(self, where: Where) -> None:
        if len(self.operands) not in (1, 2):
            raise where.at("operands").wrong("one or two numbers", self.operands)


@dataclass(frozen=True, slots=True)
class Guard(Record):
    """A condition for a trace to be valid: a comparison that must be true. `COMPARISONS` lists the comparisons."""

    op: str = saved(choice(COMPARISONS))
    left: Any = saved(number)
    right: Any = saved(number)

    @property
    def operands(self) -> tuple[Any, Any]:
        return self.left, self.right


Entry = AxisLength | ArgumentNumber | ComputeUnits | Arithmetic | HostScalar
entries = list_of(one_of(AxisLength, ArgumentNumber, ComputeUnits, Arithmetic, HostScalar), "entries", list)
guards = list_of(Guard.parse, "guards", list)

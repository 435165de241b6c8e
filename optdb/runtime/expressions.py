"""Records for the sizes and guards of a trace, and for the operands of commands.

An *entry* is an expression for one size. A number in a trace is either a plain number or a `Ref` to an entry. ``sizes``
creates entries while a function is traced, and ``exported.rules`` evaluates them for a call.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optdb.runtime.records import (
    DTYPES,
    Members,
    Parser,
    Record,
    Where,
    choice,
    dtype,
    index_in,
    is_whole,
    list_of,
    one_of,
    repeated,
    saved,
    text,
    within,
)

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
#: Maps names to functions of one or two numbers.
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
    """Cast values to a dtype, and apply one of `HOST_SCALAR_OPS`."""
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
    """Parse a number of any kind or a reference; non-finite numbers are strings."""
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
    """A comparison that must be true for a trace to be valid."""

    op: str = saved(choice(COMPARISONS))
    left: Any = saved(number)
    right: Any = saved(number)

    @property
    def operands(self) -> tuple[Any, Any]:
        return self.left, self.right


Entry = AxisLength | ArgumentNumber | ComputeUnits | Arithmetic | HostScalar
entries = list_of(one_of(AxisLength, ArgumentNumber, ComputeUnits, Arithmetic, HostScalar), "entries", list)
guards = list_of(Guard.parse, "guards", list)


#: The only vector type that kernel arguments can have; a vector consists of sixteen integers.
LONG16 = "long16"
#: The kinds of pointer parameters.
POINTERS = ("global", "constant", "local")


@functools.cache
def argument_nbytes(kind: str) -> int:
    """Return the size in bytes of a kernel argument; `kind` is the dtype of a number, or `LONG16`."""
    return 128 if kind == LONG16 else np.dtype(kind).itemsize


class Slot(int):
    """The index of a memory block."""

    __slots__ = ()


_memory = index_in("memories")


def memory_slot(value: Any, where: Where) -> Slot:
    """Parse the index of a memory block."""
    return Slot(_memory(value, where))


@dataclass(frozen=True, slots=True)
class KernelRef(Record):
    """A reference to a kernel: the index of its program, and its name in the program."""

    program: int = saved(index_in("programs"))
    function_name: str = saved(text)

    def check(self, where: Where) -> None:
        kernels = where.before("programs")[self.program].kernels
        if self.function_name not in kernels:
            raise where.at("function_name").wrong(f"one of the kernels {', '.join(kernels)}", self.function_name)


@dataclass(frozen=True, slots=True)
class LocalArgument(Record):
    """Local memory as a kernel argument."""

    kind: ClassVar[str] = "local"

    nbytes: int = saved(within(range(1, 1 << 64)))

    def fits(self, param: str) -> bool:
        """Return whether a parameter accepts the argument."""
        return param == "local"


@dataclass(frozen=True, slots=True)
class NumberArgument(Record):
    """A kernel argument that is a number or a `LONG16` with sixteen numbers."""

    kind: ClassVar[str] = "number"

    dtype: str = saved(choice((*sorted(DTYPES), LONG16)))
    values: tuple[Any, ...] = saved(numbers)

    def check(self, where: Where) -> None:
        count = 16 if self.dtype == LONG16 else 1
        if len(self.values) != count:
            raise where.at("values").wrong(f"a list of {count} numbers", self.values)

    def fits(self, param: str) -> bool:
        """Return whether a parameter accepts the argument."""
        return param not in POINTERS and argument_nbytes(self.dtype) == argument_nbytes(param)


_other_argument: Parser = repeated(one_of(LocalArgument, NumberArgument))


def kernel_argument(value: Any, where: Where) -> Slot | LocalArgument | NumberArgument | None:
    """Parse a kernel argument: the index of a memory block, null, local memory, or a number."""
    if value is None:
        return None
    return _other_argument(value, where) if isinstance(value, dict) else memory_slot(value, where)


def check_arguments(args: tuple[Any, ...], array_slots: tuple[int, ...], params: tuple[str, ...], where: Where) -> None:
    """Raise an error unless a launch's arguments match the kernel's parameters."""
    if len(args) != len(params):
        raise where.at("args").wrong(f"a list of {len(params)} arguments", args)
    for number, (arg, param) in enumerate(zip(args, params)):
        is_memory = arg is None or isinstance(arg, Slot)
        if not (param in ("global", "constant") if is_memory else arg.fits(param)):
            raise where.at("args").at(number).wrong(f"an argument for a parameter of kind {param}", arg)
    for number in array_slots:
        if number + 1 >= len(args) or not _is_array(*args[number : number + 2]):
            raise where.at("array_slots").wrong("a list of buffers with offsets", array_slots)
    if len(set(array_slots)) < len(array_slots):
        raise where.at("array_slots").wrong("a list of different numbers", array_slots)


def _is_array(memory: Any, offset: Any) -> bool:
    is_memory = memory is None or isinstance(memory, Slot)
    return is_memory and isinstance(offset, NumberArgument) and offset.dtype == "uint64"

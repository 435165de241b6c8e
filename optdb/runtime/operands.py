"""The operands of saved commands: kernels, arguments, and memory blocks, which are given by their indices."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optdb.runtime.expressions import numbers
from optdb.runtime.records import DTYPES, Parser, Record, Where, choice, index_in, one_of, repeated, saved, text, within

#: A vector of sixteen integers, the only vector type for kernel arguments.
LONG16 = "long16"
#: The kinds of pointer parameters.
POINTERS = ("global", "constant", "local")


@functools.cache
def argument_nbytes(kind: str) -> int:
    """Return the size in bytes of a numeric kernel argument, whose kind is a dtype or `LONG16`."""
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
        """Tell whether a parameter accepts the argument."""
        return param == "local"


@dataclass(frozen=True, slots=True)
class NumberArgument(Record):
    """A kernel argument that is a number, or the sixteen numbers of a `LONG16`."""

    kind: ClassVar[str] = "number"

    dtype: str = saved(choice((*sorted(DTYPES), LONG16)))
    values: tuple[Any, ...] = saved(numbers)

    def check(self, where: Where) -> None:
        count = 16 if self.dtype == LONG16 else 1
        if len(self.values) != count:
            raise where.at("values").wrong(f"a list of {count} numbers", self.values)

    def fits(self, param: str) -> bool:
        """Tell whether a parameter accepts the argument."""
        return param not in POINTERS and argument_nbytes(self.dtype) == argument_nbytes(param)


_other_argument: Parser = repeated(one_of(LocalArgument, NumberArgument))


def kernel_argument(value: Any, where: Where) -> Slot | LocalArgument | NumberArgument | None:
    """Parse a kernel argument: the index of a memory block, null, local memory, or a number."""
    if value is None:
        return None
    return _other_argument(value, where) if isinstance(value, dict) else memory_slot(value, where)


def check_arguments(args: tuple[Any, ...], array_slots: tuple[int, ...], params: tuple[str, ...], where: Where) -> None:
    """Check a launch's arguments against the kernel's parameters; raise an error if one does not match."""
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

"""Arrays of the host whose values are known when a trace runs, and where their values come from.

A *source* is a record: an argument of the call, a constant, numbers that follow from sizes, a lookup table of another
source, or another source in another shape. While a function is traced, the array of `FromTable` and `Reshaped` is an
array, which may be deferred itself; in a saved list it is a source.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.expressions import argument, numbers, sizes
from optdb.runtime.lookup_tables import TABLES
from optdb.runtime.records import Record, Where, array, choice, dtype, one_of, saved


class ValuesUnknown(TypeError):
    """Something needs the values of an array while a function is traced, before there are any."""


@dataclass(frozen=True, eq=False)
class DeferredArray:
    """An array of the host whose values are known when a trace runs."""

    shape: tuple[Any, ...]
    dtype: AnyDtype
    source: Source

    # NumPy's functions raise TypeError, instead of taking it as an array of one object.
    __array_ufunc__ = None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> Any:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> Any:
        """Its size in bytes."""
        return self.size * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        raise self._unknown()

    def __int__(self) -> int:
        raise self._unknown()

    __index__ = __int__

    def __float__(self) -> float:
        raise self._unknown()

    def _unknown(self) -> ValuesUnknown:
        return ValuesUnknown(f"the values of {self.source} are not known before a call")


def source(value: Any, where: Where) -> SavedSource:
    """Parse a source."""
    parsed: SavedSource = _parse_source(value, where)
    return parsed


@dataclass(frozen=True, slots=True, eq=False)
class FromArgument(Record):
    """An argument of the call."""

    kind: ClassVar[str] = "argument"

    argument: int = saved(argument)

    def __str__(self) -> str:
        return f"argument {self.argument}"


@dataclass(frozen=True, slots=True, eq=False)
class FromArray(Record):
    """A constant."""

    kind: ClassVar[str] = "array"

    array: HostArray = saved(array)


@dataclass(frozen=True, slots=True, eq=False)
class FromNumbers(Record):
    """Numbers of a dtype, some of them sizes."""

    kind: ClassVar[str] = "numbers"

    dtype: str = saved(dtype)
    numbers: tuple[Any, ...] = saved(numbers)

    def __str__(self) -> str:
        return "what is computed from arguments"


@dataclass(frozen=True, slots=True, eq=False)
class Reshaped(Record):
    """Another source in another shape; while a function is traced, the shape is the deferred array's own."""

    kind: ClassVar[str] = "reshaped"

    array: Any = saved(source)
    shape: tuple[Any, ...] = saved(sizes)

    def __str__(self) -> str:
        return "what is computed from arguments"


@dataclass(frozen=True, slots=True, eq=False)
class FromTable(Record):
    """A lookup table, one of `TABLES`, of another source and numbers."""

    kind: ClassVar[str] = "table"

    table: str = saved(choice(TABLES))
    array: Any = saved(source)
    numbers: tuple[Any, ...] = saved(sizes)

    def check(self, where: Where) -> None:
        """Check how many numbers there are."""
        wanted = TABLES[self.table].numbers
        if len(self.numbers) != wanted:
            raise where.at("numbers").wrong(f"a list of {wanted} numbers", self.numbers)

    def __str__(self) -> str:
        return f"what is computed by {self.table}"


@dataclass(frozen=True, slots=True, eq=False)
class FromDevice:
    """An array of the device, while a function is traced; a file cannot hold it."""

    array: Any

    def __str__(self) -> str:
        # Not formatted: formatting an array of the device would read its values.
        return "an array of the device"


SavedSource = FromArgument | FromArray | FromNumbers | Reshaped | FromTable
Source = SavedSource | FromDevice
_parse_source = one_of(FromArgument, FromArray, FromNumbers, Reshaped, FromTable)


def lengths_in(source: SavedSource) -> Iterator[Any]:
    """Yield the numbers that determine the shape of a saved source, or the values of its table."""
    match source:
        case Reshaped():
            yield from source.shape
            yield from lengths_in(source.array)
        case FromTable():
            yield from source.numbers
            yield from lengths_in(source.array)

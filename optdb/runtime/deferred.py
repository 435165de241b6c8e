"""Host arrays whose values are unknown until a trace runs, and the sources of their values.

A *source* is an argument, a constant, numbers computed from sizes, a lookup table, or a reshaped source. The field
`array` of `FromTable` and `Reshaped` is an array while a function is traced, and a source in a saved list.
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
    """An array's values are needed while a function is traced, before they are known."""


@dataclass(frozen=True, eq=False)
class DeferredArray:
    """A host array whose values are unknown until a trace runs."""

    shape: tuple[Any, ...]
    dtype: AnyDtype
    source: Source

    # None makes NumPy's functions raise TypeError instead of treating this as an array of one object.
    __array_ufunc__ = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Any:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> Any:
        """Size in bytes."""
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
    """An argument passed to the call."""

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
    """Numbers of one dtype, some of which may be symbolic."""

    kind: ClassVar[str] = "numbers"

    dtype: str = saved(dtype)
    numbers: tuple[Any, ...] = saved(numbers)

    def __str__(self) -> str:
        return "a value computed from arguments"


@dataclass(frozen=True, slots=True, eq=False)
class Reshaped(Record):
    """A reshaped source. While a function is traced, the shape is that of the deferred array."""

    kind: ClassVar[str] = "reshaped"

    array: Any = saved(source)
    shape: tuple[Any, ...] = saved(sizes)

    def __str__(self) -> str:
        return "a value computed from arguments"


@dataclass(frozen=True, slots=True, eq=False)
class FromTable(Record):
    """A lookup table: a function in `TABLES` computes it from another source and from numbers."""

    kind: ClassVar[str] = "table"

    table: str = saved(choice(TABLES))
    array: Any = saved(source)
    numbers: tuple[Any, ...] = saved(sizes)

    def check(self, where: Where) -> None:
        wanted = TABLES[self.table].numbers
        if len(self.numbers) != wanted:
            raise where.at("numbers").wrong(f"a list of {wanted} numbers", self.numbers)

    def __str__(self) -> str:
        return f"a value computed by {self.table}"


@dataclass(frozen=True, slots=True, eq=False)
class FromDevice:
    """A device array, possible only while a function is traced: a file cannot store it."""

    array: Any

    def __str__(self) -> str:
        # Do not format the array, since that would read its values.
        return "an array of the device"


SavedSource = FromArgument | FromArray | FromNumbers | Reshaped | FromTable
Source = SavedSource | FromDevice
_parse_source = one_of(FromArgument, FromArray, FromNumbers, Reshaped, FromTable)


def lengths_in(source: SavedSource) -> Iterator[Any]:
    """Yield the numbers that determine a saved source's shape or the values in its table."""
    match source:
        case Reshaped():
            yield from source.shape
            yield from lengths_in(source.array)
        case FromTable():
            yield from source.numbers
            yield from lengths_in(source.array)

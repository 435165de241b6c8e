"""Host arrays whose values are unknown until a trace runs, their sources, and lookup tables.

A *source* says where an array's values come from: an argument, a constant, numbers computed from sizes, a lookup table,
or another source with a new shape. The field `array` of `FromTable` and `Reshaped` is an array while a function is
traced, and a source in a saved command list. The functions in `TABLES` compute int64 arrays of row or class indices,
whose shapes depend only on the shapes of arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.expressions import argument, numbers, sizes
from optdb.runtime.records import Record, Where, array, choice, dtype, one_of, saved

TABLE_DTYPE = np.dtype("int64")


@dataclass(frozen=True)
class LookupTable:
    """A function that computes a table from an array and some numbers."""

    compute: Callable[..., HostArray]
    #: A function that takes the arguments of `compute` and returns the table's shape.
    shape: Callable[..., Sequence[Any]]
    numbers: int  #: How many numbers `compute` takes in addition to the array.


TABLES: dict[str, LookupTable] = {}


def _table(
    shape: Callable[..., Sequence[Any]], numbers: int = 0
) -> Callable[[Callable[..., HostArray]], Callable[..., HostArray]]:
    def register(function: Callable[..., HostArray]) -> Callable[..., HostArray]:
        TABLES[function.__name__] = LookupTable(function, shape, numbers)
        return function

    return register


@_table(shape=lambda values, columns: values.shape, numbers=1)
def classes(values: HostArray, columns: int) -> HostArray:
    """Return class indices; raise ValueError if an index is not in ``range(columns)``."""
    _check(values)
    wrong = (values < 0) | (values >= columns)
    if wrong.any():
        raise ValueError(f"y_i value out of bounds: class {values[wrong][0]} of {columns}")
    return values.astype(TABLE_DTYPE)


@_table(shape=lambda values, length, axis: values.shape, numbers=2)
def indexes(values: HostArray, length: int, axis: int) -> HostArray:
    """Return non-negative indices into an axis; raise IndexError if one is out of bounds."""
    _check(values)
    wrong = (values >= length) | (values < -length if values.dtype.kind == "i" else False)
    if wrong.any():
        raise IndexError(f"index {values[wrong][0]} is out of bounds for axis {axis} with size {length}")
    signed = values.astype(TABLE_DTYPE)
    return np.where(signed < 0, signed + length, signed)


@_table(shape=lambda named: named.shape)
def mentions(named: HostArray) -> HostArray:
    """Return the positions that sort the numbers, computed by a stable argsort."""
    _check(named, ndim=1)
    return stable_order(named).astype(TABLE_DTYPE)


@_table(shape=lambda named: named.shape)
def distinct(named: HostArray) -> HostArray:
    """Return the distinct numbers, sorted and padded with zeros."""
    _check(named, ndim=1)
    ordered, is_first = _ordered(named)
    return _filled_up(ordered[is_first], len(named), 0)


@_table(shape=lambda named: (named.shape[0] + 1,))
def begins(named: HostArray) -> HostArray:
    """Return where each distinct number first occurs in the sorted numbers, padded with the count of all numbers."""
    _check(named, ndim=1)
    _, is_first = _ordered(named)
    return _filled_up(np.flatnonzero(is_first), len(named) + 1, len(named))


def stable_order(numbers: HostArray) -> HostArray:
    """Return the positions that sort integers; equal integers stay in order."""
    return np.argsort(_narrow(numbers), kind="stable")


def _ordered(named: HostArray) -> tuple[HostArray, HostArray]:
    """Return sorted numbers, and whether each number differs from the previous number."""
    ordered = np.sort(_narrow(named), kind="stable")
    is_first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered, is_first


def _narrow(named: HostArray) -> HostArray:
    """Return numbers as uint16 if they fit, since NumPy's radix sort for uint16 is several times faster."""
    fits = len(named) > 0 and named.min() >= 0 and named.max() < 1 << 16
    return named.astype(np.uint16) if fits else named


@dataclass(frozen=True, eq=False)
class TableSource:
    """The source that a table was computed from."""

    name: str  #: One of `TABLES`.
    array: HostArray | TableSource | None
    numbers: tuple[Any, ...]

    @property
    def root(self) -> HostArray | None:
        """The array from which the first table in the chain was computed."""
        return self.array.root if isinstance(self.array, TableSource) else self.array

    def without_root(self) -> TableSource:
        """Return the source without its root array, which may be large."""
        return replace(self, array=self.array.without_root() if isinstance(self.array, TableSource) else None)

    def of(self, array: HostArray) -> HostArray:
        """Compute the table from another root array; propagate errors that the table's function raises."""
        inner = self.array.of(array) if isinstance(self.array, TableSource) else array
        return TABLES[self.name].compute(inner, *self.numbers)


def _check(values: HostArray, ndim: int | None = None) -> None:
    if values.dtype.kind not in "iub" or (ndim is not None and values.ndim != ndim):
        raise TypeError(f"it takes integers, not {values.dtype} in {values.ndim} dimensions")


def _filled_up(values: HostArray, length: int, value: int) -> HostArray:
    result = np.full(length, value, TABLE_DTYPE)
    result[: len(values)] = values
    return result


class ValuesUnknown(TypeError):
    """Raised if a traced function needs the values of an array before they are known."""


@dataclass(frozen=True, eq=False)
class DeferredArray:
    """A host array whose values are unknown until a trace runs."""

    shape: tuple[Any, ...]
    dtype: AnyDtype
    source: Source

    # If `__array_ufunc__` is None, NumPy's functions raise TypeError instead of wrapping the object in an array.
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
    """The array of another source, with a new shape."""

    kind: ClassVar[str] = "reshaped"

    array: Any = saved(source)
    shape: tuple[Any, ...] = saved(sizes)

    def __str__(self) -> str:
        return "a value computed from arguments"


@dataclass(frozen=True, slots=True, eq=False)
class FromTable(Record):
    """A lookup table, which a function in `TABLES` computes from another source and numbers."""

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
    """A device array, which a file cannot store."""

    array: Any

    def __str__(self) -> str:
        # Do not format the array, since that would read its values.
        return "an array of the device"


SavedSource = FromArgument | FromArray | FromNumbers | Reshaped | FromTable
Source = SavedSource | FromDevice
_parse_source = one_of(FromArgument, FromArray, FromNumbers, Reshaped, FromTable)


def lengths_in(source: SavedSource) -> Iterator[Any]:
    """Yield the numbers in a saved source."""
    match source:
        case Reshaped():
            yield from source.shape
            yield from lengths_in(source.array)
        case FromTable():
            yield from source.numbers
            yield from lengths_in(source.array)

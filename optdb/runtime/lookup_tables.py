"""Lookup tables for kernels: int64 arrays of row or class indices that the host computes from argument values.

The functions in `TABLES` check their arguments; a result's shape depends only on the shapes. Files name the functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.numpy_types import HostArray

TABLE_DTYPE = np.dtype("int64")


@dataclass(frozen=True)
class LookupTable:
    """A function that computes a table from an array and some numbers."""

    compute: Callable[..., HostArray]
    shape: Callable[..., Sequence[Any]]  #: Takes the function's arguments and returns the table's shape.
    numbers: int  #: How many numbers the function takes.


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
    """Return class indices; raise ValueError if an index exceeds the columns."""
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
    """Return the positions that sort the numbers, as a stable argsort."""
    _check(named, ndim=1)
    return np.argsort(named, kind="stable").astype(TABLE_DTYPE)


@_table(shape=lambda named: named.shape)
def distinct(named: HostArray) -> HostArray:
    """Return the distinct numbers, sorted and padded with zeros."""
    _check(named, ndim=1)
    return _filled_up(np.unique(named), len(named), 0)


@_table(shape=lambda named: (named.shape[0] + 1,))
def begins(named: HostArray) -> HostArray:
    """Return the start in `mentions` of each number in `distinct`, padded with the end of `mentions`."""
    _check(named, ndim=1)
    _, starts = np.unique(np.sort(named), return_index=True)
    return _filled_up(starts, len(named) + 1, len(named))


def _check(values: HostArray, ndim: int | None = None) -> None:
    if values.dtype.kind not in "iub" or (ndim is not None and values.ndim != ndim):
        raise TypeError(f"it takes integers, not {values.dtype} in {values.ndim} dimensions")


def _filled_up(values: HostArray, length: int, value: int) -> HostArray:
    result = np.full(length, value, TABLE_DTYPE)
    result[: len(values)] = values
    return result

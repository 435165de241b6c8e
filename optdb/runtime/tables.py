"""Lookup tables, which are computed at once or when a trace runs, and then uploaded to the device.

A `TableListener` receives each table's source, from which a plan recomputes the table for new values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, from_host
from optdb.runtime.commands import HostCall
from optdb.runtime.context import Context
from optdb.runtime.deferred import TABLE_DTYPE, TABLES, DeferredArray, FromDevice, FromTable
from optdb.runtime.dispatch import enqueue, listening, tracing
from optdb.runtime.sizes import SymInt


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
        """Return the source without its root array."""
        return replace(self, array=self.array.without_root() if isinstance(self.array, TableSource) else None)

    def of(self, array: HostArray) -> HostArray:
        """Compute the table from another root array."""
        inner = self.array.of(array) if isinstance(self.array, TableSource) else array
        return TABLES[self.name].compute(inner, *self.numbers)


@runtime_checkable
class TableListener(Protocol):
    """A command listener that also receives tables."""

    def on_table_computed(self, table: HostArray, source: TableSource) -> None:
        """Receive a computed table; the same array may already belong to another source."""

    def on_table_uploaded(self, table: HostArray, array: Array) -> None:
        """Receive the device array of a table."""

    def source_of(self, array: HostArray) -> TableSource | None:
        """Return the source of an array that is a computed table; None for other arrays."""


def table_on_device(context: Context, table: Any) -> Array:
    """Return a table as a device array, which a plan's next call overwrites."""
    array = from_host(context, table, constant=True)
    listener = listening()
    if listener is not None and isinstance(listener, TableListener):
        listener.on_table_uploaded(table, array)
    return array


def computed(name: str, *args: Any) -> HostArray | DeferredArray:
    """Compute a table in `TABLES` from an array and numbers; if their values are unknown, return a deferred array."""
    table = TABLES[name]
    if tracing() is None or not any(isinstance(x, DeferredArray | SymInt) for x in args):
        return _noted(name, table.compute(*args), *args)
    array, *numbers = args
    if isinstance(array, DeferredArray) and isinstance(array.source, FromDevice):
        reason = (
            "indices, rows or classes are computed by the call itself, so the host would have to read them from the "
            "device. Compute them in a separate function before the call, and pass them as an argument"
        )
        enqueue(HostCall(reason))
    return DeferredArray(tuple(table.shape(*args)), TABLE_DTYPE, FromTable(name, array, tuple(numbers)))


def _noted(name: str, table: HostArray, array: Any, *numbers: Any) -> HostArray:
    listener = listening()
    if listener is not None and isinstance(listener, TableListener):
        listener.on_table_computed(table, TableSource(name, listener.source_of(array) or array, numbers))
    return table

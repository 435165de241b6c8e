"""Computes lookup tables: at once, or when a trace runs; and puts them on the device.

A `TableListener`, such as a recorder, learns what each table was computed from (`TableSource`): a plan computes it
again of other values, and write it where kernels read it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, from_host
from optdb.runtime.commands import HostCall, enqueue, listening, tracing
from optdb.runtime.context import Context
from optdb.runtime.deferred import DeferredArray, FromDevice, FromTable
from optdb.runtime.lookup_tables import TABLE_DTYPE, TABLES
from optdb.runtime.sizes import SymInt


@dataclass(frozen=True, eq=False)
class TableSource:
    """What a table was computed from."""

    name: str  #: One of `TABLES`.
    array: HostArray | TableSource | None
    numbers: tuple[Any, ...]

    @property
    def root(self) -> HostArray | None:
        """The array that the first of the tables was computed from."""
        return self.array.root if isinstance(self.array, TableSource) else self.array

    def without_root(self) -> TableSource:
        """Return the same without the array, which may be large."""
        return replace(self, array=self.array.without_root() if isinstance(self.array, TableSource) else None)

    def of(self, array: HostArray) -> HostArray:
        """Return the table of another array in place of the root; raise what its function raises."""
        inner = self.array.of(array) if isinstance(self.array, TableSource) else array
        return TABLES[self.name].compute(inner, *self.numbers)


@runtime_checkable
class TableListener(Protocol):
    """A listener to commands that wants to know of tables, too."""

    def on_table_computed(self, table: HostArray, source: TableSource) -> None:
        """Take a table that was computed; it may be the array of another `TableSource`."""

    def on_table_uploaded(self, table: HostArray, array: Array) -> None:
        """Take the array of the device that has a table."""

    def source_of(self, array: HostArray) -> TableSource | None:
        """Return what an array was computed from, if it is a table that was computed."""


def table_on_device(context: Context, table: Any) -> Array:
    """Return a table on the device, where only the next call of a plan writes it again."""
    array = from_host(context, table, constant=True)
    listener = listening()
    if listener is not None and isinstance(listener, TableListener):
        listener.on_table_uploaded(table, array)
    return array


def computed(name: str, *args: Any) -> HostArray | DeferredArray:
    """Return the table of a name in `TABLES` for an array and numbers; while a function is traced, perhaps later."""
    table = TABLES[name]
    if tracing() is None or not any(isinstance(x, DeferredArray | SymInt) for x in args):
        return _noted(name, table.compute(*args), *args)
    array, *numbers = args
    if isinstance(array, DeferredArray) and isinstance(array.source, FromDevice):
        reason = (
            "indices, rows or classes are computed by the call itself, and the host would have to read them from the "
            "device. Compute them in a function of their own, ahead of the call, and pass them as an argument"
        )
        enqueue(HostCall(reason))
    return DeferredArray(tuple(table.shape(*args)), TABLE_DTYPE, FromTable(name, array, tuple(numbers)))


def _noted(name: str, table: HostArray, array: Any, *numbers: Any) -> HostArray:
    """Let a listener know what a table was computed from; return the table."""
    listener = listening()
    if listener is not None and isinstance(listener, TableListener):
        listener.on_table_computed(table, TableSource(name, listener.source_of(array) or array, numbers))
    return table

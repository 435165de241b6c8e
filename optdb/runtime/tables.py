"""Lookup tables, which are computed immediately or when a trace runs, and are then uploaded to the device.

A recorder receives each table's source, so that a plan can recompute the table from new values.
"""

from __future__ import annotations

from typing import Any

from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, from_host
from optdb.runtime.commands import HostCall
from optdb.runtime.context import Context
from optdb.runtime.deferred import TABLE_DTYPE, TABLES, DeferredArray, FromDevice, FromTable, TableSource
from optdb.runtime.dispatch import enqueue, listening, tracing
from optdb.runtime.recording import Recorder
from optdb.runtime.sizes import SymInt


def table_on_device(context: Context, table: Any) -> Array:
    """Return a table as a device array; if a plan records the call, the next call overwrites the array."""
    array = from_host(context, table, constant=True)
    recorder = listening()
    if isinstance(recorder, Recorder):
        recorder.on_table_uploaded(table, array)
    return array


def computed(name: str, *args: Any) -> HostArray | DeferredArray:
    """Compute a table in `TABLES` from an array and numbers; if some values are unknown, return a deferred array."""
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
    recorder = listening()
    if isinstance(recorder, Recorder):
        recorder.on_table_computed(table, TableSource(name, recorder.source_of(array) or array, numbers))
    return table

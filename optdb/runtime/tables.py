"""Computes lookup tables: at once, or when a trace runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from optdb.runtime.commands import HostCall, enqueue, tracing
from optdb.runtime.deferred import DeferredArray, FromDevice, FromTable
from optdb.runtime.lookup_tables import TABLE_DTYPE, TABLES
from optdb.runtime.sizes import SymInt


def computed(name: str, *args: Any) -> np.ndarray | DeferredArray:
    """Return the table of a name in `TABLES` for an array and numbers; while a function is traced, perhaps later."""
    table = TABLES[name]
    if tracing() is None or not any(isinstance(x, DeferredArray | SymInt) for x in args):
        return table.compute(*args)
    array, *numbers = args
    if isinstance(array, DeferredArray) and isinstance(array.source, FromDevice):
        reason = (
            "indices, rows or classes are computed by the call itself, and the host would have to read them from the "
            "device. Compute them in a function of their own, ahead of the call, and pass them as an argument"
        )
        enqueue(HostCall(reason))
    return DeferredArray(tuple(table.shape(*args)), TABLE_DTYPE, FromTable(name, array, tuple(numbers)))

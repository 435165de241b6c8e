"""Values of shared variables that stay on a device from call to call.

A host keeps the value of a shared variable in a cell, a list of one element. Once a function on a device has updated
the variable, a :class:`PlacedValue` holds the value on the device, and the cell has a stand-in for it. On a device that
shares the host's memory, that is an array of NumPy over the memory in which the device computes, so anyone may read and
write it between calls. Elsewhere, and while a call may still be at work, it is a :class:`ValueOnDevice`, which fetches
the value when the host needs it. All functions on a device find the one value by the stand-in.
"""

from __future__ import annotations

import math
import sys
import weakref
from typing import Any

import numpy as np

from optdb.device.functions.paired_buffers import (
    PairedBuffer,
    Resident,
    finish,
    finish_work,
    is_at_work,
    is_same_memory,
)
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array
from optdb.runtime.context import Context
from optdb.runtime.host_buffers import pays_zero_copy

__all__ = ["Cell", "PlacedValue", "SharedArgument", "UpdatedArgument", "ValueOnDevice", "fetched", "is_array"]

#: Where a host keeps a value: a list of one element.
Cell = list[Any]

#: The shared values whose stand-ins are arrays of NumPy, by the identities of these.
_BY_VIEW: weakref.WeakValueDictionary[int, PlacedValue] = weakref.WeakValueDictionary()


class PlacedValue:
    """The value of a shared variable on a device.

    Parameters
    ----------
    context : Context
        The context of the device.
    cell : list
        Where the host keeps the value.
    value : array
        A value of the shape and dtype that it holds.
    """

    def __init__(self, context: Context, cell: Cell, value: Any) -> None:
        self.context = context
        self.cell = cell
        self.shape: tuple[int, ...] = value.shape
        self.dtype = np.dtype(value.dtype)
        self._memory = PairedBuffer(context, math.prod(self.shape), self.dtype.name)
        #: The value as an array of NumPy, on devices that share the host's memory.
        self.view: HostArray | None = self._memory.host.reshape(self.shape) if is_same_memory(context) else None
        self._stand_in: weakref.ref[ValueOnDevice] | None = None
        if self.view is not None:
            _BY_VIEW[id(self.view)] = self
        self._own_references = self._references()

    @property
    def array(self) -> Array:
        """The array of one axis on the device."""
        return self._memory.array

    def is_in(self, cell: Cell) -> bool:
        """Tell whether a cell has the value that is on the device."""
        value = cell[0]
        is_here = value is self.view if type(value) is np.ndarray else self._is_stand_in(value)
        return is_here and cell is self.cell

    def take(self, value: Any) -> None:
        """Copy a value of the host to the device."""
        self._memory.send(np.asarray(value))

    def stand_in(self, is_done: bool) -> HostArray | ValueOnDevice:
        """Return what stands in the cell; `is_done` says that the device is not at work with the value."""
        if is_done and self.view is not None:
            return self.view
        known = None if self._stand_in is None else self._stand_in()
        if known is None:
            known = ValueOnDevice(self)
            # The value has to live as long as it stands in a cell, and not the other way round.
            self._stand_in = weakref.ref(known)
        return known

    def copied(self) -> HostArray:
        """Wait for the value, and return a copy of it."""
        with self.context.turn():
            self._memory.request()
            finish(self.context)
            return self._memory.take(self.shape)

    def fetch(self) -> HostArray:
        """Wait for the value, and put it into the cell as an array of NumPy, which the host may change; return that."""
        if self.view is None:
            value = self.copied()
        else:
            finish(self.context)
            value = self.view
        if self._is_stand_in(self.cell[0]):
            self.cell[0] = value
        return value

    def may_hold(self, cell: Cell, value: Any) -> bool:
        """Tell whether another value of a cell can be held instead, and no one sees the present one."""
        fits = cell is self.cell and value.shape == self.shape and value.dtype == self.dtype
        return fits and self._references() == self._own_references

    def _is_stand_in(self, value: Any) -> bool:
        return isinstance(value, ValueOnDevice) and value.shared is self

    def _references(self) -> int:
        """Return how many references there are to the memory that host and device share."""
        if self.view is None:
            return 0
        return sys.getrefcount(self.view) + sys.getrefcount(self._memory.host)


class ValueOnDevice:
    """Stands in a host's cell for the value of a shared variable. Copies and pickles of it are arrays of NumPy."""

    def __init__(self, shared: PlacedValue) -> None:
        self.shared = shared

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the value's axes."""
        return self.shared.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the value."""
        return self.shared.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        return self.shared.copied().astype(self.dtype if dtype is None else dtype, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return np.array, (self.shared.copied(),)

    def __repr__(self) -> str:
        return f"<a value on a device, {self.dtype} {self.shape}: get_value() of its shared variable returns it>"


def is_array(value: Any) -> bool:
    """Tell whether a value of a cell is an array, on the host or on a device."""
    return isinstance(value, np.ndarray | ValueOnDevice)


def fetched(cell: Cell) -> Any:
    """Return the value in a cell as the host has it; fetch it from a device if it is there."""
    value = cell[0]
    return value.shared.fetch() if isinstance(value, ValueOnDevice) else value


def _shared_value(value: Any, context: Context) -> PlacedValue | None:
    """Return the shared value that something stands for, if it is in a context."""
    found = value.shared if isinstance(value, ValueOnDevice) else _BY_VIEW.get(id(value))
    return found if found is not None and found.context is context else None


class UpdatedArgument:
    """An argument of a function that each call gives its next value."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.shared: PlacedValue | None = None

    def update(self, cell: Cell) -> Array | None:
        """Have the value of a cell on the device; return its array if that is another one than before, else None."""
        before = self.shared
        if before is not None and before.is_in(cell):
            return None
        value = cell[0]
        found = _shared_value(value, self._context)
        if found is None or found.cell is not cell:
            finish_work(self._context)
            found = before if before is not None and before.may_hold(cell, value) else None
            found = found or PlacedValue(self._context, cell, value)
            found.take(value)
        self.shared = found
        return None if found is before else found.array


class SharedArgument:
    """An argument that is likely to be the same array in each call: a shared variable that other functions update."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._shared: PlacedValue | None = None
        self._own: PairedBuffer | Resident | None = None
        #: The value of the last call, if nothing is to be done when it comes again.
        self._settled: Any = None

    def update(self, value: Any) -> Array | None:
        """Have a value on the device; return its array if that is another one than before, else None."""
        if value is self._settled and value is not None:
            return None
        self._settled = None
        shared = _shared_value(value, self._context)
        before, self._shared = self._shared, shared
        if shared is not None:
            self._settled = value
            return None if shared is before else shared.array
        value = np.asarray(value)
        own, is_new = self._own, before is not None or self._own is None
        if own is None:
            is_large = pays_zero_copy(value.nbytes)
            own = Resident(self._context) if is_large else PairedBuffer(self._context, value.size, value.dtype.name)
            self._own = own
        # Small values are sent in each call, unless that means to wait.
        if not is_new and (isinstance(own, Resident) or is_at_work(self._context)) and own.holds(value):
            return None
        finish_work(self._context)
        own.send(value)
        self._settled = value if isinstance(own, Resident) and own.holds(value) else None
        return own.array

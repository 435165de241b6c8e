"""Values on host and device: a call's arrays, and values of shared variables that stay on the device between calls.

A :class:`PairedBuffer` transfers an array unless host and device share memory. A :class:`PlacedValue` holds a shared
value on the device, and the host's cell contains a proxy for it. On a device that shares host memory, the proxy is a
NumPy array over the device's memory. On other devices, and while a call may be running, the proxy is a
:class:`ValueOnDevice`, which fetches the value when the host needs it.
"""

from __future__ import annotations

import functools
import math
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from optdb.codegen.loops.body import Buffer
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, DeviceArray, empty, from_host
from optdb.runtime.context import Context
from optdb.runtime.grid_failures import finish_queue
from optdb.runtime.host_buffers import pays_zero_copy, wrap_host_array
from optdb.runtime.library import cl
from optdb.runtime.packing import host_vector
from optdb.runtime.pinned_memory import pinned_memory
from optdb.runtime.recording import ArrayLayout

#: The maximum size of a pinned host array, in bytes.
_MOST_PINNED = 1 << 28

#: A one-element list in which a host keeps a value.
Cell = list[Any]

#: Maps the `id` of a NumPy proxy to its shared value.
_BY_VIEW: weakref.WeakValueDictionary[int, PlacedValue] = weakref.WeakValueDictionary()


def is_same_memory(context: Context) -> bool:
    """Return whether paired buffers on a device share memory with their host arrays."""
    profile = context.profile
    return profile.shares_host_memory and profile.writes_wrapped_arrays_directly and profile.reads_unaligned


class PairedBuffer:
    """A one-dimensional device array, paired with a host array that holds its values and may have any shape.

    If the device has its own memory, large host arrays are pinned.
    """

    def __init__(self, context: Context, shape: tuple[int, ...], dtype: str) -> None:
        self._queue = context.queue
        size = math.prod(shape)
        #: Whether the host array and the device buffer share memory.
        self.is_shared = bool(size) and is_same_memory(context)
        nbytes = size * np.dtype(dtype).itemsize
        is_pinned = not self.is_shared and context.options.transfer_sizes.least <= nbytes <= _MOST_PINNED
        self._pinned = pinned_memory(context) if is_pinned else None
        #: The values on the host, as a vector; `values` is a view of this vector with the given shape.
        self.host: HostArray
        #: Returns a copy of the values on the host.
        self.take: Callable[[], HostArray]
        if self._pinned is None:
            self.host = np.zeros(size, dtype)
            self.values = self.host.reshape(shape)
            self.take = self.values.copy
        else:
            self._owner, self.host = host_vector(context, np.dtype(dtype), size)
            self.host.fill(0)
            self.values = self.host.reshape(shape)
            self.take = functools.partial(self._pinned.copied, self.values)
        if self.is_shared:
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
            buffer = cl.Buffer(context.cl_context, flags, hostbuf=self.host)
            self.array = DeviceArray(context.queue, (size,), self.host.dtype, data=buffer)
        else:
            self.array = empty(context, (size,), self.host.dtype)
        self._event: Any = None

    def holds(self, value: HostArray) -> bool:
        """Return whether an array is bitwise equal to the values that were sent last."""
        bits = np.ascontiguousarray(value, self.host.dtype).reshape(-1).view(np.uint8)
        return np.array_equal(self.host.view(np.uint8), bits)

    def send(self, value: HostArray) -> None:
        """Send a copy of the values to the device, which must not be using the buffer."""
        if self._event is not None:
            self._event.wait()
        if self._pinned is not None and value.dtype == self.values.dtype and value.shape == self.values.shape:
            self._pinned.copy(self.values, value)
        else:
            self.values[...] = value
        if not self.is_shared and self.host.size:
            self._event = cl.enqueue_copy(self._queue, self.array.base_data, self.host, is_blocking=False)

    def enqueue_send(self, value: HostArray) -> Any:
        """Copy the values, and enqueue the transfer of the copy to the device; return the transfer's event, if any."""
        if not self.host.size:
            return None
        own = np.array(value, self.host.dtype, order="C")
        return cl.enqueue_copy(self._queue, self.array.base_data, own, is_blocking=False)

    def request(self) -> None:
        """Enqueue a transfer of the device's values to the host."""
        if not self.is_shared and self.host.size:
            self._event = cl.enqueue_copy(self._queue, self.host, self.array.base_data, is_blocking=False)

    def empty(self) -> HostArray:
        """Return an uninitialized host array for a copy of the values."""
        return np.empty_like(self.values)

    def enqueue_take(self, out: HostArray) -> Any:
        """Enqueue a copy of the device's values to a host array; return the copy's event, if any."""
        if not self.host.size:
            return None
        return cl.enqueue_copy(self._queue, out, self.array.base_data, is_blocking=False)


class BorrowedArgument:
    """A large argument on a device that shares host memory: the device reads the caller's array where it is.

    Arrays that the device cannot read are copied, and so are arrays that the caller may change during the call.
    """

    def __init__(self, context: Context, shape: tuple[int, ...], dtype: str) -> None:
        self._context = context
        self._shape, self._dtype = shape, np.dtype(dtype)
        #: The caller's array that the device may still read, and its device array.
        self._source: HostArray | None = None
        self._array: Array | None = None

    @functools.cached_property
    def _paired(self) -> PairedBuffer:
        return PairedBuffer(self._context, self._shape, self._dtype.name)

    def borrow(self, value: Any) -> Array:
        """Return a device array with an array's values, if possible in the same memory; the device must be idle."""
        if self._array is not None and value is self._source:
            return self._array
        is_fitting = isinstance(value, np.ndarray) and value.dtype == self._dtype
        buffer = wrap_host_array(self._context, value) if is_fitting else None
        if buffer is None:
            self._array = self._source = None
            return self.copy(value)
        if self._array is None:
            self._array = DeviceArray(self._context.queue, (value.size,), value.dtype, data=buffer)
        else:  # creating an array takes longer than creating a buffer
            self._array.base_data = buffer
        self._source = value
        return self._array

    def copy(self, value: Any) -> Array:
        """Return a device array with a copy of an array; the device must not be using earlier copies."""
        self._paired.send(value)
        return self._paired.array

    def enqueue_copy(self, value: Any) -> tuple[Any, Array]:
        """Enqueue a copy of an array to the device; return the copy's event, if any, and the device array."""
        return self._paired.enqueue_send(value), self._paired.array


class LentResult:
    """A large result on a device that shares host memory: plans write the result to an array that the caller gets.

    If the caller has dropped the last call's array, the next call uses its memory again.
    """

    def __init__(self, context: Context, buffer: Buffer, shape: tuple[int, ...], cell: Cell) -> None:
        self.buffer = buffer
        #: Whether the next call may write to memory that the caller gets; otherwise, the result is copied.
        self.lends = True
        self._context = context
        self._shape = shape
        #: Contains the device array with the result.
        self._cell = cell
        self._host: HostArray | None = None
        self._wrapped: cl.Buffer | None = None
        self._own_references = 0

    def bind(self, layout: ArrayLayout) -> cl.Buffer | None:
        """Return the buffer to which the next call writes the result; None if the plan chooses the buffer."""
        if not self.lends:
            return None
        if self._host is None or self._references() != self._own_references:
            self._host = self.empty()
            self._wrapped = wrap_host_array(self._context, self._host, writes=True)
            self._own_references = self._references()
        return self._wrapped

    def take(self) -> HostArray:
        """Return the result of a finished call."""
        array = self._cell[0]
        if self._host is not None and self._wrapped is not None and array.base_data is self._wrapped:
            return self._host.view()
        out = self.empty()
        self.enqueue_take(out).wait()
        return out

    def empty(self) -> HostArray:
        """Return an uninitialized host array for the result."""
        return np.empty(self._shape, self.buffer.dtype)

    def enqueue_take(self, out: HostArray) -> Any:
        """Enqueue a copy of the result to a host array; return the copy's event."""
        array = self._cell[0]
        return cl.enqueue_copy(array.queue, out, array.base_data, src_offset=array.offset, is_blocking=False)

    def forget(self) -> None:
        """Drop the traced call's result, so that later calls allocate its memory, which plans may then replace."""
        self._cell[0] = None

    def _references(self) -> int:
        return sys.getrefcount(self._host)


class Resident:
    """A host array that stays on the device between calls; unless memory is shared, each new array is copied."""

    #: The one-dimensional array on the device, from the first `send` on.
    array: Array

    def __init__(self, context: Context) -> None:
        self._context = context
        self._source: HostArray | None = None

    def holds(self, value: HostArray) -> bool:
        """Return whether the device has the current content of an array."""
        return value is self._source

    def send(self, value: HostArray) -> None:
        """Make an array available on the device."""
        buffer = wrap_host_array(self._context, value)
        if buffer is None:
            self.array = from_host(self._context, np.ascontiguousarray(value).reshape(-1))
            # The device has a copy, which misses later changes to the array. If memory is usually shared, send the
            # array again in each call.
            self._source = None if self._context.profile.shares_host_memory else value
            return
        self.array = DeviceArray(self._context.queue, (value.size,), value.dtype, data=buffer)
        self._source = value


#: The contexts with calls that may still be running, because nothing has waited for them.
_AT_WORK: set[Context] = set()


def begin_work(context: Context) -> None:
    """Record that a call returns before the device has finished it."""
    _AT_WORK.add(context)


def may_be_in_use(context: Context) -> bool:
    """Return whether the device may be using values of earlier calls."""
    return context in _AT_WORK


def finish_work(context: Context) -> None:
    """Wait for all calls that `begin_work` has recorded."""
    if _AT_WORK and context in _AT_WORK:
        _AT_WORK.discard(context)
        finish(context)


def finish(context: Context) -> None:
    """Wait for a device; raise DeviceError if a persistent launch failed meanwhile."""
    finish_queue(context.queue)


class PlacedValue:
    """The value of a shared variable on a device; the initial value sets its shape and dtype."""

    def __init__(self, context: Context, cell: Cell, value: Any) -> None:
        self.context = context
        self.cell = cell
        self.shape: tuple[int, ...] = value.shape
        self.dtype = np.dtype(value.dtype)
        self._memory = PairedBuffer(context, self.shape, self.dtype.name)
        #: Incremented when the value changes, unless the host changes `view`.
        self.version = 0
        #: The value as a NumPy array; None on devices that do not share the host's memory.
        self.view: HostArray | None = self._memory.host.reshape(self.shape) if is_same_memory(context) else None
        self._proxy: weakref.ref[ValueOnDevice] | None = None
        if self.view is not None:
            _BY_VIEW[id(self.view)] = self
        self._own_references = self._references()

    @property
    def array(self) -> Array:
        return self._memory.array

    def is_in(self, cell: Cell) -> bool:
        """Return whether a cell contains this value's proxy."""
        value = cell[0]
        is_here = value is self.view if type(value) is np.ndarray else self._is_proxy(value)
        return is_here and cell is self.cell

    def take(self, value: Any) -> None:
        self.version += 1
        self._memory.send(np.asarray(value))

    def updated(self, is_done: bool) -> HostArray | ValueOnDevice:
        """Note that a call changes the value, and return the proxy for the cell.

        `is_done` says that no call is using the value.
        """
        self.version += 1
        if is_done and self.view is not None:
            return self.view
        known = None if self._proxy is None else self._proxy()
        if known is None:
            known = ValueOnDevice(self)
            # The proxy keeps the value alive, not vice versa.
            self._proxy = weakref.ref(known)
        return known

    def copied(self) -> HostArray:
        """Wait for the value, and return a copy."""
        with self.context.turn():
            self._memory.request()
            finish(self.context)
            return self._memory.take()

    def fetch(self) -> HostArray:
        """Wait for the value, replace the proxy with a NumPy array that the host may modify, and return the array."""
        if self.view is None:
            value = self.copied()
        else:
            finish(self.context)
            value = self.view
        if self._is_proxy(self.cell[0]):
            self.cell[0] = value
        return value

    def may_hold(self, cell: Cell, value: Any) -> bool:
        """Return whether a cell's new value fits into this memory, and nothing else refers to the old value."""
        fits = cell is self.cell and value.shape == self.shape and value.dtype == self.dtype
        return fits and self._references() == self._own_references

    def _is_proxy(self, value: Any) -> bool:
        return isinstance(value, ValueOnDevice) and value.shared is self

    def _references(self) -> int:
        if self.view is None:
            return 0
        return sys.getrefcount(self.view) + sys.getrefcount(self._memory.host)


class ValueOnDevice:
    """A proxy for a shared variable's value on the device. Copying or pickling the proxy returns a NumPy array."""

    def __init__(self, shared: PlacedValue) -> None:
        self.shared = shared

    @property
    def shape(self) -> tuple[int, ...]:
        return self.shared.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.shared.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        return self.shared.copied().astype(self.dtype if dtype is None else dtype, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return np.array, (self.shared.copied(),)

    def __repr__(self) -> str:
        return f"<a value on a device, {self.dtype} {self.shape}: get_value() of its shared variable returns it>"


def is_array(value: Any) -> bool:
    """Return whether the value of a cell is an array, on the host or on a device."""
    return isinstance(value, np.ndarray | ValueOnDevice)


def fetched(cell: Cell) -> Any:
    """Return the value in a cell; fetch it from the device if necessary."""
    value = cell[0]
    return value.shared.fetch() if isinstance(value, ValueOnDevice) else value


def _shared_value(value: Any, context: Context) -> PlacedValue | None:
    """Return the shared value of a proxy in this context; None for any other value."""
    found = value.shared if isinstance(value, ValueOnDevice) else _BY_VIEW.get(id(value))
    return found if found is not None and found.context is context else None


class UpdatedArgument:
    """A function argument that every call updates."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.shared: PlacedValue | None = None

    def update(self, cell: Cell) -> Array | None:
        """Ensure that a cell's value is on the device; return its device array, or None if that array is unchanged."""
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
    """An argument that rarely changes between calls, such as a shared variable that other functions update."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._shared: PlacedValue | None = None
        self._own: PairedBuffer | Resident | None = None
        #: The last call's value, if passing it again needs no work.
        self._settled: Any = None

    def update(self, value: Any) -> Array | None:
        """Ensure that a value is on the device; return its device array, or None if nothing had to be done."""
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
            own = Resident(self._context) if is_large else PairedBuffer(self._context, value.shape, value.dtype.name)
            self._own = own
        # Small values are sent in each call without a comparison, unless the host would have to wait for the device.
        if not is_new and (isinstance(own, Resident) or may_be_in_use(self._context)) and own.holds(value):
            return None
        finish_work(self._context)
        own.send(value)
        self._settled = value if isinstance(own, Resident) and own.holds(value) else None
        return own.array

    def version(self, value: Any) -> tuple[Any, int] | None:
        """Return an object and a number that are the same while a value is unchanged; None if that is unknown."""
        shared = _shared_value(value, self._context)
        if shared is not None:
            return (shared, shared.version) if shared.view is None else None
        return (value, 0) if value is self._settled and not is_same_memory(self._context) else None


class IndexBounds:
    """The bounds of an index that is an argument; the host checks them before a call begins.

    Parameters
    ----------
    position : int
        The argument's position.
    length : int
        The length of the indexed axis; negative indices count from its end.
    argument : SharedArgument, optional
        The argument, if it rarely changes.
    """

    def __init__(self, position: int, length: int, argument: SharedArgument | None) -> None:
        self.position = position
        self._length = length
        self._argument = argument
        #: The version of the value that was checked last.
        self._checked: tuple[Any, int] | None = None

    def hold(self, value: Any) -> bool:
        """Return whether all elements of the argument's value are in bounds."""
        version = None if self._argument is None else self._argument.version(value)
        if version is not None and self._is_checked(*version):
            return True
        array = np.asarray(value)
        is_within = not array.size or bool(-self._length <= array.min() and array.max() < self._length)
        self._checked = version if is_within else None
        return is_within

    def _is_checked(self, value: Any, version: int) -> bool:
        return self._checked is not None and self._checked[0] is value and self._checked[1] == version

"""Buffers for a call's arrays on host and device, which transfer them unless both share memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, DeviceArray, empty, from_host
from optdb.runtime.context import Context
from optdb.runtime.grid_failures import check_launches
from optdb.runtime.host_buffers import wrap_host_array
from optdb.runtime.library import cl


def is_same_memory(context: Context) -> bool:
    """Return whether paired buffers on a device share memory with their host arrays."""
    profile = context.profile
    return profile.shares_host_memory and profile.writes_wrapped_arrays_directly and profile.reads_unaligned


class PairedBuffer:
    """A one-dimensional array on the device, with its values on the host."""

    def __init__(self, context: Context, size: int, dtype: str) -> None:
        self._queue = context.queue
        self.host = np.zeros(size, dtype)
        #: Whether the host array and the device buffer share memory.
        self.is_shared = bool(size) and is_same_memory(context)
        if self.is_shared:
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
            buffer = cl.Buffer(context.cl_context, flags, hostbuf=self.host)
            self.array = DeviceArray(context.queue, (size,), self.host.dtype, data=buffer)
        else:
            self.array = empty(context, (size,), self.host.dtype)
        self._event: Any = None

    def holds(self, value: HostArray) -> bool:
        """Return whether an array is bitwise equal to the last sent values."""
        bits = np.ascontiguousarray(value, self.host.dtype).reshape(-1).view(np.uint8)
        return np.array_equal(self.host.view(np.uint8), bits)

    def send(self, value: HostArray) -> None:
        """Send values to the device, which must not be using the buffer. The caller may then modify them."""
        if self._event is not None:
            self._event.wait()
        self.host.reshape(value.shape)[...] = value
        if not self.is_shared and self.host.size:
            self._event = cl.enqueue_copy(self._queue, self.array.base_data, self.host, is_blocking=False)

    def enqueue_send(self, value: HostArray) -> Any:
        """Enqueue a transfer of a copy of the values to the device; return its event, if any."""
        if not self.host.size:
            return None
        own = np.array(value, self.host.dtype, order="C")
        return cl.enqueue_copy(self._queue, self.array.base_data, own, is_blocking=False)

    def request(self) -> None:
        """Enqueue a transfer of the device's values to the host."""
        if not self.is_shared and self.host.size:
            self._event = cl.enqueue_copy(self._queue, self.host, self.array.base_data, is_blocking=False)

    def take(self, shape: tuple[int, ...]) -> HostArray:
        return self.host.reshape(shape).copy()

    def enqueue_take(self, out: HostArray) -> Any:
        """Enqueue a copy of the device's values to a host array; return its event, if any."""
        if not self.host.size:
            return None
        return cl.enqueue_copy(self._queue, out, self.array.base_data, is_blocking=False)


class Resident:
    """A host array that stays on the device between calls; if memory is not shared, only a new array is copied."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._source: HostArray | None = None
        self._array: Array | None = None

    @property
    def array(self) -> Array:
        """The one-dimensional array on the device; it must have been sent."""
        assert self._array is not None, "an argument is sent before it is used"
        return self._array

    def holds(self, value: HostArray) -> bool:
        """Return whether the device has the current content of an array."""
        return value is self._source

    def send(self, value: HostArray) -> None:
        """Make an array available on the device."""
        flat = np.ascontiguousarray(value).reshape(-1)
        buffer = wrap_host_array(self._context, flat) if np.shares_memory(flat, value) else None
        if buffer is None:
            self._array = from_host(self._context, flat)
            # Without a buffer in host memory, the device would miss later changes of the array.
            self._source = None if self._context.profile.shares_host_memory else value
            return
        self._array = DeviceArray(self._context.queue, flat.shape, flat.dtype, data=buffer)
        self._source = value


#: The contexts of calls that nothing has waited for.
_AT_WORK: set[Context] = set()


def begin_work(context: Context) -> None:
    """Record that a call returns before the device has finished."""
    _AT_WORK.add(context)


def may_be_in_use(context: Context) -> bool:
    """Return whether the device may be using values of earlier calls."""
    return context in _AT_WORK


def finish_work(context: Context) -> None:
    """Wait for all calls that `begin_work` has noted."""
    if _AT_WORK and context in _AT_WORK:
        _AT_WORK.discard(context)
        finish(context)


def finish(context: Context) -> None:
    """Wait for a device; raise DeviceError if a persistent launch failed meanwhile."""
    queue = context.queue
    check_launches(queue)
    queue.finish()

"""Where the arrays of a call cross between host and device.

A :class:`PairedBuffer` is a buffer of the device with an array of the host beside it. On a device that shares the
host's memory both are the same memory, so nothing is copied on the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, DeviceArray, empty
from optdb.runtime.context import Context
from optdb.runtime.library import cl


class PairedBuffer:
    """An array of one axis on the device, and its values on the host."""

    def __init__(self, context: Context, size: int, dtype: str) -> None:
        self._queue = context.queue
        self.host = np.zeros(size, dtype)
        profile = context.profile
        self._is_shared = bool(
            size and profile.shares_host_memory and profile.writes_wrapped_arrays_directly and profile.reads_unaligned
        )
        if self._is_shared:
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
            buffer = cl.Buffer(context.cl_context, flags, hostbuf=self.host)
            self.array = DeviceArray(context.queue, (size,), self.host.dtype, data=buffer)
        else:
            self.array = empty(context, (size,), self.host.dtype)
        self._event: Any = None

    def send(self, value: HostArray) -> None:
        """Move values to the device; they may be changed as soon as this returns."""
        if self._event is not None:
            self._event.wait()
        self.host.reshape(value.shape)[...] = value
        if not self._is_shared and self.host.size:
            self._event = cl.enqueue_copy(self._queue, self.array.base_data, self.host, is_blocking=False)

    def request(self) -> None:
        """Begin to move the device's values to the host; they are there when the queue is done."""
        if not self._is_shared and self.host.size:
            self._event = cl.enqueue_copy(self._queue, self.host, self.array.base_data, is_blocking=False)

    def take(self, shape: tuple[int, ...]) -> HostArray:
        """Return a copy of the values on the host."""
        return self.host.reshape(shape).copy()


class Resident:
    """An array of the host that stays on the device from call to call.

    On a device that shares the host's memory it is the same memory. Elsewhere it is copied when another array takes its
    place.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._source: HostArray | None = None

    def update(self, value: HostArray) -> Array | None:
        """Hold an array on the device; return it if it is another one than before, else None."""
        if value is self._source:
            return None
        from optdb.runtime.arrays import from_host
        from optdb.runtime.host_buffers import wrap_host_array

        flat = np.ascontiguousarray(value).reshape(-1)
        buffer = wrap_host_array(self._context, flat) if np.shares_memory(flat, value) else None
        if buffer is None:
            copy = from_host(self._context, flat)
            # Without a buffer in the host's memory, changes of the array itself are not seen where that is possible.
            self._source = None if self._context.profile.shares_host_memory else value
            return copy
        wrapped = DeviceArray(self._context.queue, flat.shape, flat.dtype, data=buffer)
        self._source = value
        return wrapped

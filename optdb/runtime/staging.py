"""Staging buffers: arrays are copied into them while a device computes, and are moved to their targets later."""

from __future__ import annotations

from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, DeviceArray, copy_bytes
from optdb.runtime.context import Context
from optdb.runtime.library import cl
from optdb.runtime.packing import side_queue
from optdb.runtime.pinned_memory import ASYNC_SIZES, known_pinned_memory
from optdb.runtime.scripts import IMMEDIATE

#: The maximum number of staged arrays that have not been moved yet.
_MOST_STAGED = 2


class Staged:
    """A host array that is being copied to a device; one call receives this object in place of the array."""

    def __init__(self, context: Context, array: DeviceArray, event: cl.Event) -> None:
        self._context = context
        self._array, self._event = array, event
        self.shape, self.dtype, self.nbytes = array.shape, array.dtype, array.nbytes

    def move_to(self, target: Array) -> None:
        """Copy the values into a C-contiguous array of the same shape and dtype, on the context's queue."""
        if self._event.command_execution_status != cl.command_execution_status.COMPLETE:
            IMMEDIATE.delay(self._context.queue, [self._event])
        copy_bytes(target, self._array)


class StagingBuffer:
    """Copies the next array for one argument to a device, on a separate queue and through pinned memory.

    Parameters
    ----------
    context : Context
        A context whose device has its own memory.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._queue = side_queue(context)
        #: The device arrays, all alike; the array to use next is first.
        self._arrays: list[DeviceArray] = []

    def begin(self, value: HostArray) -> Staged | None:
        """Start copying an array to the device; return None if staging saves no time.

        The caller may change the array when this returns. The device must have finished the array staged before the
        previous one.
        """
        pinned = known_pinned_memory(self._context)
        if pinned is None or value.nbytes not in ASYNC_SIZES:
            return None
        array = self._next_array(value)
        if array is None:
            return None
        event = pinned.upload(self._queue, array.base_data, array.offset, value)
        if event is None:
            return None
        self._queue.flush()
        return Staged(self._context, array, event)

    def _next_array(self, value: HostArray) -> DeviceArray | None:
        if self._arrays and (self._arrays[0].shape, self._arrays[0].dtype) != (value.shape, value.dtype):
            self._arrays = []
        if len(self._arrays) < _MOST_STAGED:
            try:
                array = DeviceArray(self._context.queue, value.shape, value.dtype)
            except (cl.MemoryError, cl.LogicError):
                return None
        else:
            array = self._arrays.pop(0)
        self._arrays.append(array)
        return array

"""Arrays of one dtype that are packed into one buffer for a single transfer, and staging buffers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.arrays import Array, DeviceArray, copy_bytes
from optdb.runtime.buffer_assignment import ALIGNMENT
from optdb.runtime.context import Context
from optdb.runtime.host_buffers import map_buffer, unmap
from optdb.runtime.library import cl
from optdb.runtime.pinned_memory import known_pinned_memory
from optdb.runtime.scripts import IMMEDIATE, Calls, Pending


def side_queue(context: Context) -> cl.CommandQueue:
    """Return a new queue for copies that run while the context's queue is busy."""
    return cl.CommandQueue(context.cl_context, context.queue.device)


def mark(queue: cl.CommandQueue) -> cl.Event:
    """Return an event that lets other queues wait for a queue's earlier commands."""
    event = cl.enqueue_marker(queue)
    queue.flush()
    return event


def maps_buffers(context: Context) -> bool:
    """Return whether the host can read and write a device's buffers in place."""
    return context.profile.shares_host_memory and context.profile.writes_wrapped_arrays_directly


def host_vector(context: Context, dtype: AnyDtype, size: int) -> tuple[Any, HostArray]:
    """Allocate a host vector, in pinned memory if possible; return the owner of the memory, and the vector."""
    dtype = np.dtype(dtype)
    if not size or context.profile.shares_host_memory:
        return None, np.empty(size, dtype)
    owner, memory = _pinned(context, size * dtype.itemsize)
    return owner, memory.view(dtype)


class PackedVector:
    """A buffer for aligned arrays of one dtype with given shapes; on the host, the arrays form one vector.

    The host maps the buffer of a CPU device. With `on_host`, devices that are not CPUs copy the vector to and from
    pinned memory. A downloaded vector keeps its memory alive, for example for a message that is still being sent.
    """

    def __init__(
        self, context: Context, dtype: AnyDtype, shapes: Sequence[tuple[int, ...]], on_host: bool = True
    ) -> None:
        self.dtype, self.shapes = np.dtype(dtype), list(shapes)
        self._queue = context.queue
        starts, nbytes = _starts(self.dtype, self.shapes)
        self._bounds = [start // self.dtype.itemsize for start in (*starts, nbytes)]
        #: The buffer's size in bytes; a vector without elements has no buffer.
        self.nbytes = nbytes
        #: Whether the host reads and writes the buffer in place.
        self.is_mapped = maps_buffers(context)
        self._host = np.empty(0, self.dtype)
        self._mapping: HostArray | None = None
        self._upload: Any = None
        if nbytes:
            self._allocate(context, nbytes, on_host)
        #: The arrays on the device.
        self.arrays = [self._array(shape, start) for shape, start in zip(self.shapes, starts, strict=True)]

    def _allocate(self, context: Context, nbytes: int, on_host: bool) -> None:
        flags = cl.mem_flags
        try:
            access = flags.READ_WRITE | (flags.ALLOC_HOST_PTR if self.is_mapped else 0)
            self._buffer = cl.Buffer(context.cl_context, access, nbytes)
            cl.enqueue_fill_buffer(self._queue, self._buffer, np.zeros((), np.uint8), 0, nbytes)
        except (cl.MemoryError, cl.LogicError) as error:
            name = context.profile.name
            raise MemoryError(f"cannot allocate {nbytes:,} bytes in one piece on {name}: {error}") from error
        if on_host and not self.is_mapped:
            self._pinned, memory = _pinned(context, nbytes)
            self._host = memory.view(self.dtype)

    def _array(self, shape: tuple[int, ...], start: int) -> DeviceArray:
        if not math.prod(shape):
            return DeviceArray(self._queue, shape, self.dtype)
        return DeviceArray(self._queue, shape, self.dtype, data=self._buffer, offset=start)

    def copy_from(self, other: PackedVector) -> None:
        """On the device, copy all elements from `other`, a vector with the same shapes and context."""
        if self.nbytes:
            cl.enqueue_copy(self._queue, self._buffer, other._buffer, byte_count=self.nbytes)

    def holds(self, index: int, array: Any) -> bool:
        """Return whether an array is the vector's array number `index`."""
        return self.is_place(index, array.shape, array.base_data, array.offset)

    def is_place(self, index: int, shape: tuple[int, ...], buffer: Any, offset: int) -> bool:
        """Return whether the vector's array number `index` has the given shape, buffer and offset."""
        mine = self.arrays[index]
        if shape != mine.shape:
            return False
        return not mine.size or (offset == mine.offset and bool(buffer == self._buffer))

    def on_both(self, part: slice) -> tuple[cl.Buffer, int, HostArray]:
        """Return the buffer, offset and host memory of the elements in `part`; the device must have its own memory."""
        return self._buffer, part.start * self.dtype.itemsize, self._host[part]

    def download(self) -> HostArray:
        """Wait for the device and return the elements, which are read-only and must not be read after `release`."""
        if not self.nbytes:
            return self._host
        if self.is_mapped:
            return self._map(cl.map_flags.READ)
        cl.enqueue_copy(self._queue, self._host, self._buffer, is_blocking=True)
        return self._host

    def open(self) -> HostArray:
        """Return memory for new elements, all of which must be written before `upload`."""
        if not (self.nbytes and self.is_mapped):
            return self._host
        return self._map(cl.map_flags.READ | cl.map_flags.WRITE)

    def upload(self) -> None:
        """Start uploading the written elements, which must not change until the copy is complete."""
        if not self.nbytes or self.is_mapped:
            self.release()
            return
        # Keep the event, since its destructor waits for the copy.
        self._upload = cl.enqueue_copy(self._queue, self._buffer, self._host, is_blocking=False)

    def part(self, first: int, stop: int) -> slice:
        """Return the slice that contains the elements of the arrays `first` to `stop - 1`."""
        return slice(self._bounds[first], self._bounds[stop])

    def fetch(self, queue: cl.CommandQueue, part: slice, after: Sequence[cl.Event]) -> tuple[HostArray, cl.Event]:
        """Enqueue a download that waits for the events `after`; return the host memory and the copy's event."""
        buffer, start, elements = self.on_both(part)
        event = cl.enqueue_copy(queue, elements, buffer, src_offset=start, is_blocking=False, wait_for=list(after))
        return elements, event

    def share_of(self, rank: int, count: int) -> slice:
        """Return the aligned slice of elements that device number `rank` of `count` devices sums over all devices."""
        block = ALIGNMENT // self.dtype.itemsize
        blocks = self.nbytes // ALIGNMENT
        return slice(blocks * rank // count * block, blocks * (rank + 1) // count * block)

    def read(self, part: slice, calls: Calls) -> Pending:
        """Copy elements to the host's vector after all earlier commands; return the copy's event."""
        buffer, start, elements = self.on_both(part)
        return calls.download(self._queue, buffer, start, elements)

    def write(self, part: slice, elements: HostArray, calls: Calls) -> Pending:
        """Copy elements from the host after all earlier commands; return the copy's event."""
        return self.put(self._queue, part, elements, (), calls)

    def put(
        self, queue: cl.CommandQueue, part: slice, elements: HostArray, after: Sequence[cl.Event], calls: Calls
    ) -> Pending:
        """Enqueue an upload that waits for the events `after`; return the copy's event.

        The elements must not change until the copy is complete. The event's destructor waits for the copy.
        """
        return calls.upload(queue, self._buffer, part.start * self.dtype.itemsize, elements, after)

    @property
    def whole(self) -> slice:
        """The slice of all elements, including the padding between arrays."""
        return slice(0, self.nbytes // self.dtype.itemsize)

    def elements(self, part: slice) -> DeviceArray:
        """Return the elements in a slice as a device array."""
        return self._array((part.stop - part.start,), part.start * self.dtype.itemsize)

    def release(self) -> None:
        """Unmap the buffer after `download` or `open`."""
        if self._mapping is not None:
            mapping, self._mapping = self._mapping, None
            unmap(self._queue, mapping)

    def _map(self, flags: int) -> HostArray:
        self.release()
        self._mapping = map_buffer(self._queue, self._buffer, flags, 0, self.nbytes // self.dtype.itemsize, self.dtype)
        return self._mapping


def _starts(dtype: AnyDtype, shapes: Sequence[tuple[int, ...]]) -> tuple[list[int], int]:
    starts, stop = [], 0
    for shape in shapes:
        starts.append(stop)
        stop += -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    return starts, stop


def _pinned(context: Context, nbytes: int) -> tuple[cl.Buffer | None, HostArray]:
    try:
        buffer = cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, nbytes)
        access = cl.map_flags.READ | cl.map_flags.WRITE
        memory = map_buffer(context.queue, buffer, access, 0, nbytes)
    except cl.Error:
        return None, np.zeros(nbytes, np.uint8)
    return buffer, memory


#: The maximum number of staged arrays that wait for `move_to`, and the maximum share of a device's memory that each of
#: them may take.
_MOST_STAGED, _MOST_MEMORY = 2, 1 / 16


class Staged:
    """A host array that is being copied to a device; a call receives this object instead of the array."""

    def __init__(self, context: Context, array: DeviceArray, event: cl.Event) -> None:
        self._context = context
        self._array, self._event = array, event
        self.shape, self.dtype, self.nbytes = array.shape, array.dtype, array.nbytes

    def move_to(self, target: Array) -> None:
        """Copy the values into a C-contiguous array with the same shape and dtype."""
        if self._event.command_execution_status != cl.command_execution_status.COMPLETE:
            IMMEDIATE.delay(self._context.queue, [self._event])
        copy_bytes(target, self._array)


class StagingBuffer:
    """Copies an argument's next array to a device in advance, on a separate queue and through pinned memory."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._queue = side_queue(context)
        #: The device arrays, which all have the same shape and dtype; the first array is used next.
        self._arrays: list[DeviceArray] = []

    def begin(self, value: HostArray) -> Staged | None:
        """Start copying an array to the device; return None if staging saves no time or takes too much memory.

        The caller may change the array after this method returns. The staging buffer has memory for two arrays, so the
        device must have finished using the array that was staged two calls earlier.
        """
        pinned = known_pinned_memory(self._context)
        most = self._context.profile.global_memory_bytes * _MOST_MEMORY
        if pinned is None or not self._context.options.transfer_sizes.least <= value.nbytes <= most:
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

"""Arrays of one dtype next to each other in one buffer, so that one transfer moves all of them (`PackedVector`).

A part of the arrays may be copied, too, by a queue of its own (`side_queue`), while the device computes the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.arena import ALIGNMENT
from optdb.runtime.arrays import DeviceArray
from optdb.runtime.context import Context
from optdb.runtime.host_buffers import map_buffer, unmap
from optdb.runtime.library import cl
from optdb.runtime.scripts import Calls, ScriptedCopy

__all__ = ["PackedVector", "host_vector", "maps_buffers", "mark", "side_queue"]


def side_queue(context: Context) -> cl.CommandQueue:
    """Return a new queue of a context's device, for copies while its own queue is busy."""
    return cl.CommandQueue(context.cl_context, context.queue.device)


def mark(queue: cl.CommandQueue) -> cl.Event:
    """Return the event of what a queue was given until now, which other queues may wait for."""
    event = cl.enqueue_marker(queue)
    queue.flush()
    return event


def maps_buffers(context: Context) -> bool:
    """Tell whether the host reads and writes a device's buffers where they lie."""
    return context.profile.shares_host_memory and context.profile.writes_wrapped_arrays_directly


def host_vector(context: Context, dtype: AnyDtype, size: int) -> tuple[Any, HostArray]:
    """Return a vector on the host that a device reads and writes by itself, where its driver has such memory.

    Before it comes what keeps its memory.
    """
    dtype = np.dtype(dtype)
    if not size or context.profile.shares_host_memory:
        return None, np.empty(size, dtype)
    owner, memory = _pinned(context, size * dtype.itemsize)
    return owner, memory.view(dtype)


class PackedVector:
    """A buffer that arrays of one dtype lie in, and its elements on the host as one vector.

    Each array begins where the widest vectors of a kernel may. Elements between arrays are zeros.

    Of a processor, the host maps the buffer, and copies nothing. Other devices copy it to and from pinned memory, which
    they read and write by themselves. A vector that was downloaded may be read at any later time, such as by a message
    that is still on its way: it keeps the memory.

    Parameters
    ----------
    context : Context
        Of the device.
    dtype : numpy.dtype
        Of the arrays.
    shapes : sequence of tuple of int
        For each array.
    on_host : bool
        Whether there is memory for the elements on the host, too.
    """

    def __init__(
        self, context: Context, dtype: AnyDtype, shapes: Sequence[tuple[int, ...]], on_host: bool = True
    ) -> None:
        self.dtype, self.shapes = np.dtype(dtype), list(shapes)
        self._queue = context.queue
        starts, nbytes = _starts(self.dtype, self.shapes)
        self._bounds = [start // self.dtype.itemsize for start in (*starts, nbytes)]
        #: The bytes of the buffer; without any, there is none.
        self.nbytes = nbytes
        #: Whether the host reads and writes the buffer where it lies.
        self.is_mapped = maps_buffers(context)
        self._host = np.empty(0, self.dtype)
        self._mapping: HostArray | None = None
        self._upload: Any = None
        if nbytes:
            self._allocate(context, nbytes, on_host)
        #: On the device.
        self.arrays = [self._array(shape, start) for shape, start in zip(self.shapes, starts, strict=True)]

    def _allocate(self, context: Context, nbytes: int, on_host: bool) -> None:
        flags = cl.mem_flags
        try:
            access = flags.READ_WRITE | (flags.ALLOC_HOST_PTR if self.is_mapped else 0)
            self._buffer = cl.Buffer(context.cl_context, access, nbytes)
            cl.enqueue_fill_buffer(self._queue, self._buffer, np.zeros((), np.uint8), 0, nbytes)
        except (cl.MemoryError, cl.LogicError) as error:
            name = context.profile.name
            raise MemoryError(f"no room for {nbytes:,} bytes in one piece on {name}: {error}") from error
        if on_host and not self.is_mapped:
            self._pinned, memory = _pinned(context, nbytes)
            self._host = memory.view(self.dtype)

    def _array(self, shape: tuple[int, ...], start: int) -> DeviceArray:
        if not math.prod(shape):
            return DeviceArray(self._queue, shape, self.dtype)
        return DeviceArray(self._queue, shape, self.dtype, data=self._buffer, offset=start)

    def copy_from(self, other: PackedVector) -> None:
        """Copy the elements of a vector of the same shapes in the same context, on the device."""
        if self.nbytes:
            cl.enqueue_copy(self._queue, self._buffer, other._buffer, byte_count=self.nbytes)

    def holds(self, index: int, array: Any) -> bool:
        """Tell whether an array is the one of that number: it lies where that one does."""
        return self.is_place(index, array.shape, array.base_data, array.offset)

    def is_place(self, index: int, shape: tuple[int, ...], buffer: Any, offset: int) -> bool:
        """Tell whether an array of a shape, at an offset in a buffer, is the one of that number."""
        mine = self.arrays[index]
        if shape != mine.shape:
            return False
        return not mine.size or (offset == mine.offset and bool(buffer == self._buffer))

    def on_both(self, part: slice) -> tuple[cl.Buffer, int, HostArray]:
        """Return where elements are on a device with memory of its own, by their buffer and offset, and on the host."""
        return self._buffer, part.start * self.dtype.itemsize, self._host[part]

    def download(self) -> HostArray:
        """Wait for the device; return the elements, which are not to be changed, and may change after `release`."""
        if not self.nbytes:
            return self._host
        if self.is_mapped:
            return self._map(cl.map_flags.READ)
        cl.enqueue_copy(self._queue, self._host, self._buffer, is_blocking=True)
        return self._host

    def open(self) -> HostArray:
        """Return memory for new elements, all of which are to be written before `upload`."""
        if not (self.nbytes and self.is_mapped):
            return self._host
        return self._map(cl.map_flags.READ | cl.map_flags.WRITE)

    def upload(self) -> None:
        """Upload the elements that were written, in the background: they must stay as they are."""
        if not self.nbytes or self.is_mapped:
            self.release()
            return
        # Kept: PyOpenCL waits for a copy whose event is dropped.
        self._upload = cl.enqueue_copy(self._queue, self._buffer, self._host, is_blocking=False)

    def part(self, first: int, stop: int) -> slice:
        """Return where the elements of some neighbours are: the arrays from one number on up to another one."""
        return slice(self._bounds[first], self._bounds[stop])

    def fetch(self, queue: cl.CommandQueue, part: slice, after: Sequence[cl.Event]) -> tuple[HostArray, cl.Event]:
        """Begin to download some elements by a queue, once events are complete; return where they arrive, and when."""
        buffer, start, elements = self.on_both(part)
        event = cl.enqueue_copy(queue, elements, buffer, src_offset=start, is_blocking=False, wait_for=list(after))
        return elements, event

    def put(
        self,
        queue: cl.CommandQueue,
        part: slice,
        elements: HostArray,
        after: Sequence[cl.Event],
        calls: Calls,
    ) -> cl.Event | ScriptedCopy:
        """Begin to upload elements by a queue, once events are complete; they must stay as they are until it is done.

        Return the event, which keeps the elements: PyOpenCL waits for a copy whose event is dropped.
        """
        return calls.upload(queue, self._buffer, part.start * self.dtype.itemsize, elements, after)

    @property
    def elements(self) -> DeviceArray:
        """All elements on the device, those between arrays among them."""
        return self._array((self.nbytes // self.dtype.itemsize,), 0)

    def release(self) -> None:
        """Give the buffer back to the device, after `download` or `open`."""
        if self._mapping is not None:
            mapping, self._mapping = self._mapping, None
            unmap(self._queue, mapping)

    def _map(self, flags: int) -> HostArray:
        self.release()
        self._mapping = map_buffer(self._queue, self._buffer, flags, 0, self.nbytes // self.dtype.itemsize, self.dtype)
        return self._mapping


def _starts(dtype: AnyDtype, shapes: Sequence[tuple[int, ...]]) -> tuple[list[int], int]:
    """Return where arrays begin, in bytes, and how many bytes they take."""
    starts, stop = [], 0
    for shape in shapes:
        starts.append(stop)
        stop += -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    return starts, stop


def _pinned(context: Context, nbytes: int) -> tuple[cl.Buffer | None, HostArray]:
    """Return memory on the host that does not move, and what keeps it; ordinary memory where the driver has none."""
    try:
        buffer = cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, nbytes)
        access = cl.map_flags.READ | cl.map_flags.WRITE
        memory = map_buffer(context.queue, buffer, access, 0, nbytes)
    except cl.Error:
        return None, np.zeros(nbytes, np.uint8)
    return buffer, memory

"""Non-blocking copies to the host: commands for plans, and a host vector for repeated reads.

A prepared call stores its event's handle in an `EventHandle`; `EventHandle.take` takes ownership of the event.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.arrays import Array
from optdb.runtime.commands import EnqueueDownload, Transfer
from optdb.runtime.context import Context
from optdb.runtime.dispatch import enqueue, listening
from optdb.runtime.driver_batches import DriverCalls, PreparedCall
from optdb.runtime.library import cl
from optdb.runtime.packing import host_vector
from optdb.runtime.pinned_memory import known_pinned_memory
from optdb.runtime.scripts import Script


class EventHandle:
    """Memory for the handle of a prepared call's event; `cell` may be part of another object."""

    def __init__(self, cell: ctypes.c_void_p | None = None) -> None:
        self._cell = ctypes.c_void_p() if cell is None else cell

    @property
    def address(self) -> int:
        return ctypes.addressof(self._cell)

    def take(self) -> cl.Event | None:
        """Return the event and take ownership of it; None if there is no new event."""
        handle, self._cell.value = self._cell.value, None
        return cl.Event.from_int_ptr(handle, retain=False) if handle else None


@dataclass(eq=False, slots=True)
class EnqueueFetch(Transfer):
    """A copy to a C-contiguous host array at a fixed address; the copy does not block if it has a prepared call."""

    kind: ClassVar[str] = "fetch"
    _fields: ClassVar = (("source", "offset"),)

    out: HostArray
    event: EventHandle
    source: Any
    offset: int

    @property
    def nbytes(self) -> int:
        return self.out.nbytes

    def prepared_call(self, calls: DriverCalls) -> PreparedCall:
        return calls.fetch(self.queue, self.source, self.offset, self.out, self.event.address)

    def enqueue_on(self, queue: cl.CommandQueue) -> Any:
        return cl.enqueue_copy(queue, self.out, self.source, src_offset=self.offset, is_blocking=True)


@dataclass(eq=False, slots=True)
class StartQueue(Transfer):
    """A flush, which makes the device start the commands in its queue."""

    kind: ClassVar[str] = "flush"
    _fields: ClassVar = ()

    def prepared_call(self, calls: DriverCalls) -> PreparedCall:
        return calls.flush(self.queue)

    def enqueue_on(self, queue: cl.CommandQueue) -> None:
        queue.flush()


@dataclass(eq=False, slots=True)
class EnqueueMark(Transfer):
    """A marker whose event waits for the queue's earlier commands; a marker without a prepared call has no event."""

    kind: ClassVar[str] = "mark"
    _fields: ClassVar = ()

    event: EventHandle

    def prepared_call(self, calls: DriverCalls) -> PreparedCall:
        return calls.mark(self.queue, self.event.address)

    def enqueue_on(self, queue: cl.CommandQueue) -> None:
        """Do nothing."""


class HostMirror:
    """A host vector of `size` elements, pinned if possible, and a non-blocking copy of a device array into it.

    The prepared call for the copy is reused until a different array is copied. The call keeps the GIL, because
    reacquiring the GIL may take longer than the copy.
    """

    def __init__(self, context: Context, dtype: AnyDtype, size: int) -> None:
        self._context = context
        self._owner, self.values = host_vector(context, dtype, size)
        self._event = EventHandle()
        #: The command that copies the most recent array; the command keeps the array's buffer alive, so that the driver
        #: does not reuse the buffer's handle.
        self._copy: EnqueueFetch | None = None

    def fits(self, dtype: AnyDtype, size: int) -> bool:
        """Return whether the vector has the given dtype and number of elements."""
        return self.values.dtype == dtype and self.values.size == size

    def fetch(self, array: Array) -> cl.Event | None:
        """Start copying a C-contiguous array from the device; return the event, or None if the array is empty."""
        if not self.values.size:
            return None
        event = self._prepared(array)
        if event is None:
            command = EnqueueDownload(array.queue, self.values, array.base_data, array.offset, False)
            enqueue(command)
            event = command.event
        array.queue.flush()
        return event

    def copied(self, shape: Sequence[int]) -> HostArray:
        """Return a copy of the values, as an array of the given shape."""
        values, pinned = self.values.reshape(shape), known_pinned_memory(self._context)
        return values.copy() if pinned is None else pinned.copied(values)

    def fetch_by(self, script: Script, array: Array) -> Any:
        """Add a copy of a C-contiguous device array to a script, and return the copy."""
        return script.download(array.queue, array.base_data, array.offset, self.values) if self.values.size else None

    def _prepared(self, array: Array) -> cl.Event | None:
        if listening() is not None:
            return None
        copy = self._copy
        if copy is None or copy.source is not array.base_data or copy.offset != array.offset:
            copy = EnqueueFetch(array.queue, self.values, self._event, array.base_data, array.offset).prepare()
            self._copy = copy
        return None if copy.call is None or copy.call() else self._event.take()

"""Commands that copy bytes to the host while the device continues; each stores its event's handle (`EventHandle`).

A plan repeats them by prepared calls, for which Python makes no event objects. Waiting takes ownership of the event.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, ClassVar

from optdb.numpy_types import HostArray
from optdb.runtime.commands import DeviceTransfer
from optdb.runtime.driver_calls import driver_calls
from optdb.runtime.library import cl

__all__ = ["EnqueueFetch", "EnqueueMark", "EventHandle", "StartQueue"]


class EventHandle:
    """Memory for the handle of an event that a prepared call makes.

    Parameters
    ----------
    cell : ctypes.c_void_p, optional
        The memory, if it is a part of another object, which `cell` keeps alive.
    """

    def __init__(self, cell: ctypes.c_void_p | None = None) -> None:
        self._cell = ctypes.c_void_p() if cell is None else cell

    @property
    def address(self) -> int:
        """The address of the handle."""
        return ctypes.addressof(self._cell)

    def take(self) -> cl.Event | None:
        """Return the event and take ownership of it; None if no call has made one since the last time."""
        handle, self._cell.value = self._cell.value, None
        return cl.Event.from_int_ptr(handle, retain=False) if handle else None


@dataclass(eq=False, slots=True)
class EnqueueFetch(DeviceTransfer):
    """A copy to a C-contiguous host array that stays in place. The prepared call does not block; PyOpenCL's does."""

    kind: ClassVar[str] = "fetch"
    _fields: ClassVar = (("source", "offset"),)

    out: HostArray
    event: EventHandle
    source: Any
    offset: int
    is_rebindable: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes that are copied."""
        return self.out.nbytes

    def prepare(self) -> EnqueueFetch:
        """Prepare the driver call; return the command."""
        calls = driver_calls(self.queue)
        if calls is not None:
            self.call = calls.fetch(self.queue, self.source, self.offset, self.out, self.event.address)
        return self

    def enqueue_on(self, queue: cl.CommandQueue) -> Any:
        """Copy on another queue, and wait."""
        return cl.enqueue_copy(queue, self.out, self.source, src_offset=self.offset, is_blocking=True)


@dataclass(eq=False, slots=True)
class _WithoutBuffers(DeviceTransfer):
    """Base of commands that transfer nothing."""

    _fields: ClassVar = ()

    @property
    def nbytes(self) -> int:
        """0: nothing is transferred."""
        return 0


@dataclass(eq=False, slots=True)
class StartQueue(_WithoutBuffers):
    """A flush: the device starts the commands in its queue."""

    kind: ClassVar[str] = "flush"

    def prepare(self) -> StartQueue:
        """Prepare the driver call; return the command."""
        calls = driver_calls(self.queue)
        if calls is not None:
            self.call = calls.flush(self.queue)
        return self

    def enqueue_on(self, queue: cl.CommandQueue) -> None:
        """Flush another queue."""
        queue.flush()


@dataclass(eq=False, slots=True)
class EnqueueMark(_WithoutBuffers):
    """A marker with an event for the queue's earlier commands; without a prepared call, there is no event."""

    kind: ClassVar[str] = "mark"

    event: EventHandle

    def prepare(self) -> EnqueueMark:
        """Prepare the driver call; return the command."""
        calls = driver_calls(self.queue)
        if calls is not None:
            self.call = calls.mark(self.queue, self.event.address)
        return self

    def enqueue_on(self, queue: cl.CommandQueue) -> None:
        """Do nothing."""

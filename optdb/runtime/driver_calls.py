"""Calls to the OpenCL library that enqueue a command without creating an event.

PyOpenCL creates an event for each command and converts its arguments each time. A bound command prepares its call once:
a library function with converted arguments, which returns OpenCL's status. If the status is not 0, PyOpenCL enqueues
the command again, or raises its own error. A prepared call does not keep the objects of its handles alive; its command
does.
"""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.numpy_types import HostArray
from optdb.runtime.library import cl

_logger = logging.getLogger(__name__)


class PreparedCall(functools.partial[int]):
    """A library function together with its arguments; calling it enqueues a command and returns OpenCL's status."""


_Handle, _Size, _Count = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
_NOT_BLOCKING = _Count(0)
#: The last arguments of a function that waits for no events and returns no event.
_NO_EVENTS = (_Count(0), None, None)
#: The value that a device's trial writes.
_TRIAL_VALUE = 0x5A


class DriverCalls:
    """Prepares calls to the OpenCL library; raises AttributeError or OSError if the library cannot be called."""

    def __init__(self) -> None:
        loader = icd_loader()
        self._launch = loader.clEnqueueNDRangeKernel
        self._copy = loader.clEnqueueCopyBuffer
        self._fill = loader.clEnqueueFillBuffer
        self._read, self._write = loader.clEnqueueReadBuffer, loader.clEnqueueWriteBuffer
        self._flush, self._mark = loader.clFlush, loader.clEnqueueMarkerWithWaitList

    def launch(
        self, queue: cl.CommandQueue, kernel: cl.Kernel, global_size: Sequence[int], local_size: Sequence[int] | None
    ) -> PreparedCall:
        """Prepare the launch of a kernel whose arguments are set before each call."""
        sizes = _Size * len(global_size)
        group = None if local_size is None else sizes(*local_size)
        args = _handle(kernel), _Count(len(global_size)), None, sizes(*global_size), group
        return PreparedCall(self._launch, _handle(queue), *args, *_NO_EVENTS)

    def copy(
        self,
        queue: cl.CommandQueue,
        target: cl.MemoryObject,
        target_offset: int,
        source: cl.MemoryObject,
        source_offset: int,
        nbytes: int,
    ) -> PreparedCall:
        """Prepare a copy between buffers."""
        sizes = _Size(source_offset), _Size(target_offset), _Size(nbytes)
        return PreparedCall(self._copy, _handle(queue), _handle(source), _handle(target), *sizes, *_NO_EVENTS)

    def fill(
        self, queue: cl.CommandQueue, target: cl.MemoryObject, offset: int, nbytes: int, pattern: Any
    ) -> PreparedCall:
        """Prepare a fill of a buffer with a NumPy value."""
        value = np.asarray(pattern).tobytes()
        content = ctypes.create_string_buffer(value, len(value))
        sizes = _Size(len(value)), _Size(offset), _Size(nbytes)
        return PreparedCall(self._fill, _handle(queue), _handle(target), content, *sizes, *_NO_EVENTS)

    def fetch(
        self,
        queue: cl.CommandQueue,
        source: cl.MemoryObject,
        offset: int,
        out: HostArray,
        event: int,
        after: int | None = None,
    ) -> PreparedCall:
        """Prepare a non-blocking copy into a host array, which waits for the event whose handle is at `after`.

        The call writes its event's handle to the address `event`, whose owner releases the event.
        """
        args = _NOT_BLOCKING, _Size(offset), _Size(out.nbytes), _Handle(out.ctypes.data)
        waits = _Count(after is not None), _Handle(after)
        return PreparedCall(self._read, _handle(queue), _handle(source), *args, *waits, _Handle(event))

    def mark(self, queue: cl.CommandQueue, event: int) -> PreparedCall:
        """Prepare a marker for a queue's earlier commands; like `fetch`, it writes its event's handle to an address."""
        return PreparedCall(self._mark, _handle(queue), _Count(0), None, _Handle(event))

    def flush(self, queue: cl.CommandQueue) -> PreparedCall:
        """Prepare a flush of a queue."""
        return PreparedCall(self._flush, _handle(queue))

    def write(self, queue: cl.CommandQueue, target: cl.MemoryObject, offset: int, value: HostArray) -> PreparedCall:
        """Prepare a non-blocking copy of a host array into a buffer."""
        args = _handle(target), _NOT_BLOCKING, _Size(offset), _Size(value.nbytes), _Handle(value.ctypes.data)
        return PreparedCall(self._write, _handle(queue), *args, *_NO_EVENTS)


#: Maps each device to its prepared calls, or to None if its trial failed.
_calls: dict[cl.Device, DriverCalls | None] = {}


def driver_calls(queue: cl.CommandQueue) -> DriverCalls | None:
    """Return the `DriverCalls` for a queue; None if a trial fill on the queue's device fails."""
    device = queue.device
    if device not in _calls:
        _calls[device] = _tried(queue)
    return _calls[device]


def _tried(queue: cl.CommandQueue) -> DriverCalls | None:
    result = np.zeros(1, np.uint8)
    try:
        calls = DriverCalls()
    except (AttributeError, OSError) as error:  # for example on Windows, where modules do not export the functions
        _logger.info(
            "commands are enqueued by PyOpenCL, which is slower, since its library cannot be called: %s", error
        )
        return None
    target = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, result.nbytes)
    status = calls.fill(queue, target, 0, result.nbytes, np.uint8(_TRIAL_VALUE))()
    if not status:
        cl.enqueue_copy(queue, result, target, is_blocking=True)
    if status or result[0] != _TRIAL_VALUE:
        _logger.info(
            "commands for %s are enqueued by PyOpenCL, which is slower, since a trial fill returned status %d",
            queue.device.name,
            status,
        )
        return None
    return calls


@functools.cache
def icd_loader() -> ctypes.PyDLL:
    """Return the OpenCL library that PyOpenCL is linked to.

    A single call keeps the GIL, as in PyOpenCL, because reacquiring it takes as long as the call.
    """
    return ctypes.PyDLL(cl._cl.__file__)


def _handle(value: Any) -> ctypes.c_void_p:
    return _Handle(value.int_ptr)

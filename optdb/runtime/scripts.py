"""The calls that feed a device: made at once (`Immediate`), or prepared for later, without Python's lock (`Script`).

Threads that feed a device each want Python's lock at the same moment, when their devices end together. What one of them
does then takes Python tenths of a millisecond, since its code and data have left the caches meanwhile. So a thread
prepares a script while the devices are at work, and a loop in C runs it (``driver_batches``).
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from optdb.numpy_types import HostArray
from optdb.runtime.arrivals import Arrival, finish_event
from optdb.runtime.commands import CommandList
from optdb.runtime.driver_batches import Batch, loop_library
from optdb.runtime.driver_calls import PreparedCall, driver_calls, icd_loader
from optdb.runtime.library import cl

__all__ = ["IMMEDIATE", "Calls", "Immediate", "Latch", "NativeAgreement", "Script", "ScriptedCopy", "can_script"]

_NOT_BLOCKING = ctypes.c_uint(0)


def can_script(queue: cl.CommandQueue) -> bool:
    """Tell whether scripts can feed a queue now: the loop is there, and the library takes prepared calls."""
    return loop_library() is not None and driver_calls(queue) is not None


def _loop() -> ctypes.CDLL:
    library = loop_library()
    assert library is not None
    return library


class NativeAgreement:
    """Threads that agree on something, or one of which gives up, without Python's lock.

    Parameters
    ----------
    count : int
        How many have to agree.
    """

    def __init__(self, count: int) -> None:
        self._library = _loop()
        self.missing = ctypes.c_int32(count)

    @property
    def is_reached(self) -> bool:
        """Whether all have agreed."""
        return not self.missing.value

    def agree(self, timeout: float) -> bool:
        """Agree, and wait until all have agreed; return whether they have. If not, nobody can agree any more.

        Parameters
        ----------
        timeout : float
            Seconds.
        """
        return not self._library.optdb_agree(ctypes.byref(self.missing), _microseconds(timeout))

    def give_up(self) -> bool:
        """Let nobody agree, unless all have done so; return whether that is so."""
        return bool(self._library.optdb_give_up(ctypes.byref(self.missing)))


class Latch:
    """Lets threads wait until another one opens it.

    An interrupt may leave the lock of a `threading.Event` locked, which is taken in Python; here, C code takes it.
    """

    def __init__(self) -> None:
        self._is_open = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Let waits return; always the same thread opens it, once or more."""
        if not self._is_open:
            self._is_open = True
            self._lock.release()

    def wait(self) -> None:
        """Wait until it is open."""
        with self._lock:
            pass


class ScriptedCopy:
    """A copy between the host and a device that a script begins. Any thread may wait for it, also before."""

    def __init__(self, ended: Latch) -> None:
        self._ended = ended
        self.handle = ctypes.c_void_p()
        #: That of the copy, once the script has ended; None if it has failed before.
        self.event: cl.Event | None = None

    def replace(self, event: cl.Event) -> None:
        """Take an event that PyOpenCL has made."""
        self.event, self.handle.value = event, event.int_ptr

    def take_event(self) -> cl.Event | None:
        """Own the event that the call has made, if it has made one, and return it."""
        if self.event is None and self.handle.value:
            self.event = cl.Event.from_int_ptr(self.handle.value, retain=False)
        return self.event

    def wait(self) -> None:
        """Wait until the copy is complete, or the script has failed before."""
        self._ended.wait()
        finish_event(self.event)


class Immediate:
    """Makes each call as its method is called, by PyOpenCL."""

    def wait(self, events: Sequence[cl.Event]) -> None:
        """Wait for events."""
        Arrival(events).wait()

    def upload(
        self, queue: cl.CommandQueue, target: cl.Buffer, offset: int, values: HostArray, after: Sequence[cl.Event]
    ) -> cl.Event:
        """Begin to copy values that stay as they are to a device, once events are complete."""
        return cl.enqueue_copy(queue, target, values, dst_offset=offset, is_blocking=False, wait_for=list(after))

    def delay(self, queue: cl.CommandQueue, events: Sequence[cl.Event]) -> None:
        """Let later commands of a queue wait for events of other queues of its context."""
        if events:
            cl.enqueue_barrier(queue, wait_for=list(events))

    def enqueue(self, commands: CommandList) -> None:
        """Enqueue the commands of a list."""
        commands.enqueue()

    def flush(self, queue: cl.CommandQueue) -> None:
        """Let the device begin what its queue has."""
        queue.flush()

    def note_time(self) -> ctypes.c_double:
        """Return the time in seconds, of a clock of its own."""
        return ctypes.c_double(time.perf_counter())


IMMEDIATE = Immediate()


class Script:
    """A `Batch` of calls that wait, copy, launch and agree, in the order in which its methods were called.

    What the library refuses is made by PyOpenCL, which frees memory first, or raises its own error.
    """

    def __init__(self) -> None:
        self._loop = _loop()
        self._driver = icd_loader()
        #: What other lists of calls come between, and the calls since the last one of these.
        self._batches: list[Batch] = []
        self._calls: list[PreparedCall] = []
        self._fallbacks: list[Callable[[], None]] = []
        #: What the calls have addresses of.
        self._kept: list[Any] = []
        self._copies: list[ScriptedCopy] = []
        #: Set once it has run, or failed.
        self.ended = Latch()

    def wait(self, events: Sequence[cl.Event]) -> None:
        """Let the host wait for events."""
        for event in events:
            self._add(self._driver.clWaitForEvents, event.wait, ctypes.c_uint(1), _handles([event]))

    def upload(
        self, queue: cl.CommandQueue, target: cl.Buffer, offset: int, values: HostArray, after: Sequence[cl.Event]
    ) -> ScriptedCopy:
        """Begin to copy values that stay as they are to a device, once events are complete."""
        copy = self._copy()
        ends = _handle(target), _NOT_BLOCKING, ctypes.c_size_t(offset), ctypes.c_size_t(values.nbytes)
        events = ctypes.c_uint(len(after)), _handles(after) if after else None, _pointer(copy.handle)

        def otherwise() -> None:
            copy.replace(IMMEDIATE.upload(queue, target, offset, values, after))

        address = ctypes.c_void_p(values.ctypes.data)
        self._add(self._driver.clEnqueueWriteBuffer, otherwise, _handle(queue), *ends, address, *events)
        self._kept += [values, target, *after]
        return copy

    def download(self, queue: cl.CommandQueue, source: cl.Buffer, offset: int, out: HostArray) -> ScriptedCopy:
        """Begin to copy from a device into an array of the host, which stays there."""
        copy = self._copy()
        ends = _handle(source), _NOT_BLOCKING, ctypes.c_size_t(offset), ctypes.c_size_t(out.nbytes)
        events = ctypes.c_uint(0), None, _pointer(copy.handle)

        def otherwise() -> None:
            copy.replace(cl.enqueue_copy(queue, out, source, src_offset=offset, is_blocking=False))

        address = ctypes.c_void_p(out.ctypes.data)
        self._add(self._driver.clEnqueueReadBuffer, otherwise, _handle(queue), *ends, address, *events)
        self._kept += [out, source]
        return copy

    def delay(self, queue: cl.CommandQueue, events: Sequence[cl.Event | ScriptedCopy]) -> None:
        """Let later commands of a queue wait for events of other queues of its context."""
        for event in events:
            handles = _pointer(event.handle) if isinstance(event, ScriptedCopy) else _handles([event])

            def otherwise(event: cl.Event | ScriptedCopy = event) -> None:
                made = event.take_event() if isinstance(event, ScriptedCopy) else event
                assert made is not None
                IMMEDIATE.delay(queue, [made])

            barrier = self._driver.clEnqueueBarrierWithWaitList
            self._add(barrier, otherwise, _handle(queue), ctypes.c_uint(1), handles, None)
            self._kept.append(event)

    def enqueue(self, commands: CommandList) -> None:
        """Enqueue the commands of a list that needs no Python."""
        self._end_calls()
        self._batches.append(commands.batch)

    def flush(self, queue: cl.CommandQueue) -> None:
        """Let the device begin what its queue has."""
        self._add(self._driver.clFlush, queue.flush, _handle(queue))

    def agree(self, agreement: NativeAgreement, timeout: float, refused: Callable[[], None]) -> None:
        """Agree, and wait until all have agreed.

        Parameters
        ----------
        agreement : NativeAgreement
            Of all.
        timeout : float
            Seconds within which they have to.
        refused : callable
            Called if they have not; it raises an error.
        """
        missing = _pointer(agreement.missing)
        self._add(self._loop.optdb_agree, refused, missing, ctypes.c_uint64(_microseconds(timeout)))
        self._kept.append(agreement)

    def note_time(self) -> ctypes.c_double:
        """Return what will have the time, in seconds of a clock of its own, at which the script comes here."""
        seconds = ctypes.c_double()
        self._add(self._loop.optdb_note_time, lambda: None, _pointer(seconds))
        self._kept.append(seconds)
        return seconds

    def run(self) -> None:
        """Make the calls, once; raise what PyOpenCL raises, or `refused`."""
        self._end_calls()
        try:
            Batch.joined(self._batches).run()
        finally:
            for copy in self._copies:
                copy.take_event()
            self.ended.open()

    def _copy(self) -> ScriptedCopy:
        copy = ScriptedCopy(self.ended)
        self._copies.append(copy)
        return copy

    def _add(self, function: Any, otherwise: Callable[[], None], *args: Any) -> None:
        self._calls.append(PreparedCall(function, *args))
        self._fallbacks.append(otherwise)

    def _end_calls(self) -> None:
        """Make one batch of the calls so far: many small ones would take three times as long."""
        if self._calls:
            self._batches.append(Batch(self._calls, self._fallbacks))
            self._calls, self._fallbacks = [], []


#: What feeds a device.
Calls = Immediate | Script


def _microseconds(seconds: float) -> int:
    return min(int(1e6 * seconds), 1 << 62)


def _handle(value: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(value.int_ptr)


def _handles(values: Sequence[Any]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(values))(*(value.int_ptr for value in values))


def _pointer(value: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(ctypes.addressof(value))

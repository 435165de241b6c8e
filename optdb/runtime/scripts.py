"""Calls that give commands to a device: `Immediate` makes calls at once, and `Script` later, without the GIL.

If several devices finish together, their threads wait for the GIL, which costs each thread tenths of a millisecond. A
thread therefore prepares a script while the devices compute, and C code runs it.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from optdb.numpy_types import HostArray
from optdb.runtime.commands import CommandList
from optdb.runtime.driver_batches import Batch, PreparedCall, driver_calls, icd_loader, loop_library
from optdb.runtime.library import cl


class Arrival:
    """Copies in progress, each given as an event or a `ScriptedCopy`; any thread may wait for the copies."""

    def __init__(self, events: Sequence[Any]) -> None:
        self._events = events

    def wait(self) -> None:
        """Wait until the copies are complete."""
        for event in self._events:
            finish_event(event)


def finish_event(event: Any) -> None:
    """Wait for an event or a scripted copy; keep the GIL if the event is already complete."""
    if event is None:
        return
    if not isinstance(event, cl.Event) or event.command_execution_status != cl.command_execution_status.COMPLETE:
        event.wait()


_NOT_BLOCKING = ctypes.c_uint(0)


def can_script() -> bool:
    """Return whether scripts can run: the C loop must be loaded, and the OpenCL library must be callable."""
    return loop_library() is not None and driver_calls() is not None


def _loop() -> ctypes.CDLL:
    library = loop_library()
    assert library is not None
    return library


class NativeAgreement:
    """A vote among `count` threads; voting does not need the GIL. Any thread can make the vote fail by giving up."""

    def __init__(self, count: int) -> None:
        self._library = _loop()
        self.missing = ctypes.c_int32(count)

    @property
    def is_reached(self) -> bool:
        """Whether all threads have agreed."""
        return not self.missing.value

    def agree(self, timeout: float) -> bool:
        """Agree, and wait at most `timeout` seconds for the other threads; return whether all agreed.

        If not all threads agree in time, the vote has failed permanently.
        """
        return not self._library.optdb_agree(ctypes.byref(self.missing), _microseconds(timeout))

    def give_up(self) -> bool:
        """Make the vote fail unless all threads have agreed; return whether the vote has failed."""
        return bool(self._library.optdb_give_up(ctypes.byref(self.missing)))


class Latch:
    """A latch on which threads wait until another thread opens it. Interrupts cannot break the latch."""

    def __init__(self) -> None:
        self._is_open = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Release the waiting threads. Only one thread may call this method; further calls have no effect."""
        if not self._is_open:
            self._is_open = True
            self._lock.release()

    def wait(self) -> None:
        """Wait until the latch is open."""
        with self._lock:
            pass


class ScriptedCopy:
    """A copy that a script starts; any thread may wait for the copy, even before the script runs."""

    def __init__(self, ended: Latch) -> None:
        self._ended = ended
        self.handle = ctypes.c_void_p()
        #: The copy's event once the script has ended; None if the script failed before starting the copy.
        self.event: cl.Event | None = None

    def replace(self, event: cl.Event) -> None:
        """Set the copy's event to an event that PyOpenCL created."""
        self.event, self.handle.value = event, event.int_ptr

    def take_event(self) -> cl.Event | None:
        """Return the copy's event, if there is one, and take ownership of the event."""
        if self.event is None and self.handle.value:
            self.event = cl.Event.from_int_ptr(self.handle.value, retain=False)
        return self.event

    def wait(self) -> None:
        """Wait until the copy is complete, or until the script has failed before starting the copy."""
        self._ended.wait()
        finish_event(self.event)


#: An event that exists, or one that a script will create.
Pending = cl.Event | ScriptedCopy


class Immediate:
    """Makes each call immediately through PyOpenCL."""

    def wait(self, events: Sequence[Pending]) -> None:
        Arrival(events).wait()

    def upload(
        self, queue: cl.CommandQueue, target: cl.Buffer, offset: int, values: HostArray, after: Sequence[cl.Event]
    ) -> cl.Event:
        """Enqueue an upload that waits for the events `after`; the values must not change until it is complete."""
        return cl.enqueue_copy(queue, target, values, dst_offset=offset, is_blocking=False, wait_for=list(after))

    def download(self, queue: cl.CommandQueue, source: cl.Buffer, offset: int, out: HostArray) -> cl.Event:
        """Enqueue a copy from a device to a host array, which must stay at its address."""
        return cl.enqueue_copy(queue, out, source, src_offset=offset, is_blocking=False)

    def delay(self, queue: cl.CommandQueue, events: Sequence[cl.Event]) -> None:
        """Make later commands in a queue wait for events of other queues in the same context."""
        if events:
            cl.enqueue_barrier(queue, wait_for=list(events))

    def enqueue(self, commands: CommandList) -> None:
        """Enqueue the commands of a list."""
        commands.enqueue()

    def flush(self, queue: cl.CommandQueue) -> None:
        """Start the commands in a queue."""
        queue.flush()

    def note_time(self) -> ctypes.c_double:
        """Return the current time in seconds, from a clock with an arbitrary origin."""
        return ctypes.c_double(time.perf_counter())


IMMEDIATE = Immediate()


class Script:
    """Collects calls that C code makes later. Calls that the driver refuses are repeated through PyOpenCL."""

    def __init__(self) -> None:
        self._loop = _loop()
        self._driver = icd_loader()
        #: `_batches` are finished; the calls in `_calls` are not yet in a batch, and `_fallbacks` has a fallback for
        #: each.
        self._batches: list[Batch] = []
        self._calls: list[PreparedCall] = []
        self._fallbacks: list[Callable[[], None]] = []
        #: The objects whose addresses the calls contain.
        self._kept: list[Any] = []
        self._copies: list[ScriptedCopy] = []
        #: The latch that opens when the script has run or failed.
        self.ended = Latch()

    def wait(self, events: Sequence[Pending]) -> None:
        """Add a wait for events to the script."""
        for event in events:

            def otherwise(event: Pending = event) -> None:
                finish_event(event.take_event() if isinstance(event, ScriptedCopy) else event)

            self._add(self._driver.clWaitForEvents, otherwise, ctypes.c_uint(1), _event_handles(event))
            self._kept.append(event)

    def upload(
        self, queue: cl.CommandQueue, target: cl.Buffer, offset: int, values: HostArray, after: Sequence[cl.Event]
    ) -> ScriptedCopy:
        """Add an upload that waits for the events `after`; the values must not change until it is complete."""
        return self._transfer(
            *(self._driver.clEnqueueWriteBuffer, queue, target, offset, values, after),
            lambda: IMMEDIATE.upload(queue, target, offset, values, after),
        )

    def download(self, queue: cl.CommandQueue, source: cl.Buffer, offset: int, out: HostArray) -> ScriptedCopy:
        """Add a copy from a device to a host array, which must stay at its address."""
        return self._transfer(
            *(self._driver.clEnqueueReadBuffer, queue, source, offset, out, ()),
            lambda: IMMEDIATE.download(queue, source, offset, out),
        )

    def _transfer(
        self,
        function: Any,
        queue: cl.CommandQueue,
        buffer: cl.Buffer,
        offset: int,
        values: HostArray,
        after: Sequence[cl.Event],
        otherwise: Callable[[], cl.Event],
    ) -> ScriptedCopy:
        copy = ScriptedCopy(self.ended)
        self._copies.append(copy)
        sizes = ctypes.c_size_t(offset), ctypes.c_size_t(values.nbytes), ctypes.c_void_p(values.ctypes.data)
        events = ctypes.c_uint(len(after)), _handles(after) if after else None, _pointer(copy.handle)
        args = _handle(queue), _handle(buffer), _NOT_BLOCKING, *sizes, *events
        self._add(function, lambda: copy.replace(otherwise()), *args)
        self._kept += [values, buffer, *after]
        return copy

    def delay(self, queue: cl.CommandQueue, events: Sequence[Pending]) -> None:
        """Add barriers that make later commands in a queue wait for events of other queues in the same context."""
        for event in events:

            def otherwise(event: Pending = event) -> None:
                made = event.take_event() if isinstance(event, ScriptedCopy) else event
                assert made is not None
                IMMEDIATE.delay(queue, [made])

            barrier = self._driver.clEnqueueBarrierWithWaitList
            self._add(barrier, otherwise, _handle(queue), ctypes.c_uint(1), _event_handles(event), None)
            self._kept.append(event)

    def enqueue(self, commands: CommandList) -> None:
        """Add the commands of a list to the script; the list must not need Python (`CommandList.needs_python`)."""
        self._end_calls()
        self._batches.append(commands.batch)

    def flush(self, queue: cl.CommandQueue) -> None:
        """Add a flush, which starts the commands in a queue, to the script."""
        self._add(self._driver.clFlush, queue.flush, _handle(queue))

    def agree(self, agreement: NativeAgreement, timeout: float, refused: Callable[[], None]) -> None:
        """Add a vote to the script; unless all threads agree within `timeout` seconds, the script calls `refused`.

        `refused` raises an error.
        """
        missing = _pointer(agreement.missing)
        self._add(self._loop.optdb_agree, refused, missing, ctypes.c_uint64(_microseconds(timeout)))
        self._kept.append(agreement)

    def note_time(self) -> ctypes.c_double:
        """Return a number that the script sets to the current time in seconds when the script reaches this call."""
        seconds = ctypes.c_double()
        self._add(self._loop.optdb_note_time, lambda: None, _pointer(seconds))
        self._kept.append(seconds)
        return seconds

    def run(self) -> None:
        """Make all calls; a script can run only once. Raise any error from PyOpenCL or `refused`."""
        self._end_calls()
        try:
            Batch.joined(self._batches).run()
        finally:
            for copy in self._copies:
                copy.take_event()
            self.ended.open()

    def _add(self, function: Any, otherwise: Callable[[], None], *args: Any) -> None:
        self._calls.append(PreparedCall(function, *args))
        self._fallbacks.append(otherwise)

    def _end_calls(self) -> None:
        if self._calls:
            self._batches.append(Batch(self._calls, self._fallbacks))
            self._calls, self._fallbacks = [], []


#: An object that makes calls, either immediately or later in a script.
Calls = Immediate | Script


def _microseconds(seconds: float) -> int:
    return min(int(1e6 * seconds), 1 << 62)


def _handle(value: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(value.int_ptr)


def _handles(values: Sequence[Any]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(values))(*(value.int_ptr for value in values))


def _event_handles(event: Pending) -> Any:
    """Return the address of an event's handle, which a script may fill in later."""
    return _pointer(event.handle) if isinstance(event, ScriptedCopy) else _handles([event])


def _pointer(value: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(ctypes.addressof(value))

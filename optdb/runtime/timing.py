"""Profiling of commands on a device, by the device's own clock.

A context's queue does not profile, since that has a cost. A :class:`Timer` listens to the commands of a thread
(``commands``), and enqueues them on a profiling queue; at each switch between the two queues, it waits for both. A
:class:`CommandRange` times the commands that are enqueued between its creation and its `stop`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from optdb.runtime.commands import AllocateBuffer, EnqueueUpload, HostCall
from optdb.runtime.context import Context
from optdb.runtime.grid_failures import check_launches
from optdb.runtime.library import cl


def timed_beside(queue: cl.CommandQueue) -> cl.CommandQueue:
    """Return a new profiling queue for another queue's device."""
    return cl.CommandQueue(queue.context, queue.device, cl.command_queue_properties.PROFILING_ENABLE)


def seconds_of(event: cl.Event) -> float:
    """Return the seconds that a command ran on the device; it has to be complete, in a profiling queue."""
    return (event.profile.end - event.profile.start) * 1e-9


@dataclass(frozen=True, eq=False)
class Timed:
    """A command and its times."""

    command: Any
    event: cl.Event
    #: Host times, by `time.perf_counter`, when the previous command was enqueued, and when this one was.
    begun: float
    enqueued: float

    @property
    def seconds(self) -> float:
        """The seconds that it ran on the device; it has to be complete."""
        return seconds_of(self.event)


class Timer:
    """Listens to the commands of one thread, and times them."""

    tracing = False
    takes_bound = True

    def __init__(self) -> None:
        #: The commands since `begin`.
        self.commands: list[Timed] = []
        self._queues: dict[int, tuple[cl.CommandQueue, cl.CommandQueue]] = {}
        # The timer has to wait for commands outside the timed queues.
        self._beside = True
        self._since = 0.0

    def begin(self) -> None:
        """Start a new list of commands."""
        self.commands = []
        self._beside = True
        self._since = time.perf_counter()

    def finish(self) -> None:
        """Wait for all commands in the profiling queues."""
        for _, timed in self._queues.values():
            timed.finish()

    def on(self, command: Any) -> None:
        """Enqueue a command on a profiling queue, and keep its event."""
        if isinstance(command, AllocateBuffer):
            return
        if isinstance(command, HostCall):  # it does not use the profiling queues
            self.finish()
            self._beside = True
            return
        event = command.enqueue_on(self._timed_queue(command.queue))
        if isinstance(command, EnqueueUpload) and command.is_constant:
            event.wait()  # a context may keep the array, and other threads may use it in the context's queue
        now = time.perf_counter()
        self.commands.append(Timed(command, event, self._since, now))
        self._since = now

    def _timed_queue(self, queue: cl.CommandQueue) -> cl.CommandQueue:
        """Return the profiling queue that replaces a queue."""
        if queue.int_ptr not in self._queues:
            self._queues[queue.int_ptr] = queue, timed_beside(queue)
            self._beside = True
        if self._beside:
            for plain, _ in self._queues.values():
                plain.finish()
            self._beside = False
        return self._queues[queue.int_ptr][1]


@dataclass(frozen=True)
class Times:
    """The times of work on a device, in nanoseconds by its own clock."""

    queued: int  #: The work was enqueued.
    submitted: int  #: The driver submitted it to the device.
    start: int  #: All earlier work was complete.
    end: int  #: The work was complete.


class CommandRange:
    """The commands enqueued on a context's queue from now on until `stop`, timed by markers in another queue."""

    def __init__(self, context: Context) -> None:
        self._queue = context.queue
        if __name__ not in context.kept:
            context.kept[__name__] = timed_beside(self._queue), cl.CommandQueue(context.cl_context, self._queue.device)
        self._clock, self._reader = context.kept[__name__]
        self._first = self._mark()
        self._last: Any = None

    def stop(self) -> None:
        """End the range, and flush it to the device."""
        self._last = self._mark()
        self._queue.flush()
        self._clock.flush()

    @property
    def done(self) -> bool:
        """Whether the device has completed the range."""
        return bool(self._last.command_execution_status <= cl.command_execution_status.COMPLETE)

    def wait(self) -> None:
        """Wait for the range, but not for later commands; raise pyopencl.Error or DeviceError if the device failed."""
        self._last.wait()
        check_launches(self._queue, self._reader)

    def times(self) -> Times:
        """Wait for the range, and return its times."""
        self.wait()
        first, last = self._first.profile, self._last.profile
        # On an H100 shared by twelve processes, the first marker sometimes ended later than the last one.
        return Times(first.queued, first.submit, min(first.end, last.end), last.end)

    def _mark(self) -> Any:
        """Enqueue a marker in the profiling queue, which waits for a marker in the context's queue."""
        return cl.enqueue_marker(self._clock, wait_for=[cl.enqueue_marker(self._queue)])

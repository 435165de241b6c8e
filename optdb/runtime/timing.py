"""Times commands with the device's clock, and function calls with the host's clock.

A :class:`Timer` enqueues a thread's commands on a profiling queue, since profiling would slow down a context's queue. A
:class:`CommandRange` times the commands between its creation and its `stop`. A :class:`StepTrial` times alternative
implementations of a step during successive calls to a function. :class:`RunAhead` limits how far the host runs ahead of
a queue.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from optdb.runtime.commands import AllocateBuffer, EnqueueUpload, HostCall
from optdb.runtime.context import Context
from optdb.runtime.grid_failures import check_launches
from optdb.runtime.library import cl


def timed_beside(queue: cl.CommandQueue) -> cl.CommandQueue:
    """Return a new profiling queue on the device of `queue`."""
    return cl.CommandQueue(queue.context, queue.device, cl.command_queue_properties.PROFILING_ENABLE)


def seconds_of(event: cl.Event) -> float:
    """Return a completed command's run time on the device in seconds, from its event on a profiling queue."""
    return (event.profile.end - event.profile.start) * 1e-9


@dataclass(frozen=True, eq=False)
class Timed:
    """A command and its times."""

    command: Any
    event: cl.Event
    #: The times when the previous command and this command were enqueued, from `time.perf_counter`.
    begun: float
    enqueued: float

    @property
    def seconds(self) -> float:
        """The command's run time on the device in seconds; the command must be complete."""
        return seconds_of(self.event)


class Timer:
    """Listens to the commands of one thread and times them."""

    tracing = False
    takes_bound = True

    def __init__(self) -> None:
        #: The commands enqueued since `begin`.
        self.commands: list[Timed] = []
        self._queues: dict[int, tuple[cl.CommandQueue, cl.CommandQueue]] = {}
        # Whether the timer must wait for commands outside the profiling queues.
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
        """Enqueue a command on a profiling queue and keep its event."""
        if isinstance(command, AllocateBuffer):
            return
        if isinstance(command, HostCall):  # a host call does not use the profiling queues
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
    """The times at which a device handled some work, in nanoseconds of the device's clock."""

    queued: int  #: The time when the work was enqueued.
    submitted: int  #: The time when the driver submitted the work to the device.
    start: int  #: The time when all earlier work was complete.
    end: int  #: The time when the work was complete.


class CommandRange:
    """Times the commands enqueued on a context's queue from construction to `stop`, using markers in another queue."""

    def __init__(self, context: Context) -> None:
        self._queue = context.queue
        if __name__ not in context.kept:
            context.kept[__name__] = timed_beside(self._queue), cl.CommandQueue(context.cl_context, self._queue.device)
        self._clock, self._reader = context.kept[__name__]
        self._first = self._mark()
        self._last: Any = None

    def stop(self) -> None:
        """End the range and flush its commands to the device."""
        self._last = self._mark()
        self._queue.flush()
        self._clock.flush()

    @property
    def done(self) -> bool:
        """Whether the device has completed the range."""
        return bool(self._last.command_execution_status <= cl.command_execution_status.COMPLETE)

    def wait(self) -> None:
        """Wait for the range, but not for later commands; raise pyopencl.Error or DeviceError on failure."""
        self._last.wait()
        check_launches(self._queue, self._reader)

    def times(self) -> Times:
        """Wait for the range and return its times."""
        self.wait()
        first, last = self._first.profile, self._last.profile
        # On an H100 shared by twelve processes, the first marker sometimes ended later than the last marker.
        return Times(first.queued, first.submit, min(first.end, last.end), last.end)

    def _mark(self) -> Any:
        """Enqueue, in the profiling queue, a marker that waits for a marker in the context's queue."""
        return cl.enqueue_marker(self._clock, wait_for=[cl.enqueue_marker(self._queue)])


#: The number of timed calls per implementation.
TIMED_CALLS = 5


class StepTrial:
    """Times several implementations (`ways`) of a step during successive calls, one implementation after another.

    The device is idle before and after a timed call. Calls that raise an error do not count. For each implementation
    after the first, the first call does not count either, because it is the first to launch the implementation's
    kernels.
    """

    def __init__(self, queues: Iterable[cl.CommandQueue], ways: int) -> None:
        self._queues = list(queues)
        self._seconds: list[list[float]] = [[] for _ in range(ways)]
        self._began: float | None = None

    @property
    def way(self) -> int | None:
        """The index of the implementation that the next call uses; None if all have been timed."""
        timed = (TIMED_CALLS + (way > 0) for way in range(len(self._seconds)))
        return next((way for way, calls in enumerate(timed) if len(self._seconds[way]) < calls), None)

    @property
    def medians(self) -> list[float]:
        """The median time of a call in seconds, for each implementation."""
        return [statistics.median(seconds[-TIMED_CALLS:]) for seconds in self._seconds]

    def begin(self) -> int | None:
        """Start timing a call, and return its implementation's index; None if all implementations have been timed."""
        way = self.way
        if way is not None:
            self._finish()
            self._began = time.perf_counter()
        return way

    def end(self) -> None:
        """Stop timing a call, which must have enqueued all its commands."""
        way, began = self.way, self._began
        if way is None or began is None:
            return
        self._finish()
        self._seconds[way].append(time.perf_counter() - began)
        self._began = None

    def _finish(self) -> None:
        for queue in self._queues:
            queue.finish()


#: The maximum device time in seconds between two markers.
STRIDE_S = 0.1


class RunAhead:
    """Lets the host run at most two *strides* of steps ahead of a queue, since an interrupt waits for queued commands.

    A stride grows until it takes a tenth of a second, so that the overhead of markers is negligible.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        self._stride = 1
        self._steps = 0
        self._marker: cl.Event | None = None
        self._marked_at = time.perf_counter()

    def after_step(self) -> None:
        """Count a step whose commands have been enqueued; at the end of a stride, wait for the previous stride."""
        self._steps += 1
        if self._steps < self._stride:
            return
        marker = cl.enqueue_marker(self._queue)
        self._queue.flush()
        if self._marker is not None:
            self._marker.wait()
        now = time.perf_counter()
        seconds = now - self._marked_at
        if seconds < STRIDE_S / 2:
            self._stride *= 2
        elif seconds > STRIDE_S:
            self._stride = max(1, self._stride // 2)
        self._steps, self._marker, self._marked_at = 0, marker, now

"""Times of commands on a device, by the device's own clock.

A context's queue keeps no times, since profiling has a cost. A :class:`Timer` listens to the commands of a thread
(``commands``), and has them put into a queue of its own that keeps them; both queues are waited for where one takes
over from the other. A :class:`CommandRange` takes the times of what is put into a queue between its making and its
`stop`.
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
    """Return a new queue for the device of another one, which keeps times."""
    return cl.CommandQueue(queue.context, queue.device, cl.command_queue_properties.PROFILING_ENABLE)


def seconds_of(event: cl.Event) -> float:
    """Return how long a command ran on the device; it has to be done, in a queue that keeps times."""
    return (event.profile.end - event.profile.start) * 1e-9


@dataclass(frozen=True, eq=False)
class Timed:
    """A command, and when it ran."""

    command: Any
    event: cl.Event
    #: Python's times, by `time.perf_counter`, when the one before was in the queue, and when this one was.
    begun: float
    enqueued: float

    @property
    def seconds(self) -> float:
        """How long it ran on the device; it has to be done."""
        return seconds_of(self.event)


class Timer:
    """Listens to the commands of one thread, and has them timed."""

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
        """Forget the commands so far."""
        self.commands = []
        self._beside = True
        self._since = time.perf_counter()

    def finish(self) -> None:
        """Wait for all that was put into the timed queues."""
        for _, timed in self._queues.values():
            timed.finish()

    def on(self, command: Any) -> None:
        """Enqueue a command on a queue that keeps times, and keep its event."""
        if isinstance(command, AllocateBuffer):
            return
        if isinstance(command, HostCall):  # it goes beside the timed queues
            self.finish()
            self._beside = True
            return
        event = command.enqueue_on(self._timed_queue(command.queue))
        if isinstance(command, EnqueueUpload) and command.is_constant:
            event.wait()  # a context may keep the array, and other threads use it in the plain queue
        now = time.perf_counter()
        self.commands.append(Timed(command, event, self._since, now))
        self._since = now

    def _timed_queue(self, queue: cl.CommandQueue) -> cl.CommandQueue:
        """Return the queue that keeps times, for one that does not."""
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
    """When a device did something, in nanoseconds by its own clock."""

    queued: int  #: It was asked for.
    submitted: int  #: The driver handed it to the device.
    start: int  #: All that came before it was done.
    end: int  #: It was done.


class CommandRange:
    """What is put into a context's queue from now on, until `stop`, timed by marks in another queue."""

    def __init__(self, context: Context) -> None:
        self._queue = context.queue
        if __name__ not in context.kept:
            context.kept[__name__] = timed_beside(self._queue), cl.CommandQueue(context.cl_context, self._queue.device)
        self._clock, self._reader = context.kept[__name__]
        self._first = self._mark()
        self._last: Any = None

    def stop(self) -> None:
        """End the range, and ensure that the device begins with it."""
        self._last = self._mark()
        self._queue.flush()
        self._clock.flush()

    @property
    def done(self) -> bool:
        """Whether the device has done all of it."""
        return bool(self._last.command_execution_status <= cl.command_execution_status.COMPLETE)

    def wait(self) -> None:
        """Wait until it is done, but for nothing later; raise pyopencl.Error or DeviceError if the device failed."""
        self._last.wait()
        check_launches(self._queue, self._reader)

    def times(self) -> Times:
        """Wait until it is done, and tell when that was."""
        self.wait()
        first, last = self._first.profile, self._last.profile
        # On an H100 that twelve processes shared, the first mark had a later end than the last one.
        return Times(first.queued, first.submit, min(first.end, last.end), last.end)

    def _mark(self) -> Any:
        """Enqueue a mark in the queue that keeps times, which waits for one in the context's."""
        return cl.enqueue_marker(self._clock, wait_for=[cl.enqueue_marker(self._queue)])

"""When each command of a thread ran on the device, and how long Python took to put it there.

A :class:`Timer` listens to commands (``optdb.runtime.commands``), and has them put into a queue of its own that keeps
times: the context's does not, for that costs something. Both queues are waited for where one takes over from the other.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from optdb.runtime.command_list import AllocateBuffer, EnqueueKernel, HostCall
from optdb.runtime.library import cl

__all__ = ["Timed", "Timer", "seconds_of", "timed_beside"]


def timed_beside(queue: cl.CommandQueue) -> cl.CommandQueue:
    """Return a new queue for the device of another one, which keeps times."""
    return cl.CommandQueue(queue.context, queue.device, cl.command_queue_properties.PROFILING_ENABLE)


def seconds_of(event: cl.Event) -> float:
    """Return how long a command ran on the device; it has to be done, in a queue that keeps times."""
    return (event.profile.end - event.profile.start) * 1e-9


@dataclass(frozen=True, eq=False)
class Timed:
    """A command.

    Parameters
    ----------
    kind : {'launch', 'copy', 'fill', 'upload', 'download'}
        What was done.
    name : str
        The kernel's; else the kind again.
    items, group : tuple of int or None
        Of a launch.
    buffers : tuple of pyopencl.MemoryObject
        What a launch was given; each once.
    nbytes : int
        What another command has moved: what is read and written counts twice.
    event : pyopencl.Event
        Knows when it ran.
    begun, enqueued : float
        Python's times, by `time.perf_counter`, when the one before was in the queue, and when this one was.
    """

    kind: str
    name: str
    items: tuple[int, ...] | None
    group: tuple[int, ...] | None
    buffers: tuple[Any, ...]
    nbytes: int
    event: cl.Event
    begun: float
    enqueued: float

    @property
    def seconds(self) -> float:
        """How long it ran on the device; it has to be done."""
        return seconds_of(self.event)


class Timer:
    """Listens to the commands of one thread, and has them timed.

    Attributes
    ----------
    commands : list of Timed
        What was done since `begin`.
    """

    tracing = False

    def __init__(self) -> None:
        self.commands: list[Timed] = []
        self._queues: dict[int, tuple[cl.CommandQueue, cl.CommandQueue]] = {}
        # Something was done beside the timed queues, and has to be waited for.
        self._beside = True
        self._since = 0.0

    def begin(self) -> None:
        """Forget what was done so far."""
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
        now = time.perf_counter()
        self.commands.append(_timed(command, event, self._since, now))
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


def _timed(command: Any, event: cl.Event, begun: float, enqueued: float) -> Timed:
    """Return what is kept of a command: not its operands, but for a launch's buffers."""
    if not isinstance(command, EnqueueKernel):
        return Timed(command.kind, command.name, None, None, (), command.moved_nbytes, event, begun, enqueued)
    buffers = {buffer.int_ptr: buffer for _, buffer in command.operands()}
    sizes = command.global_size, command.local_size
    return Timed(command.kind, command.name, *sizes, tuple(buffers.values()), 0, event, begun, enqueued)

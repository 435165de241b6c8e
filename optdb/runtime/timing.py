"""When each command of a thread ran on the device, and how long Python took to put it there.

A :class:`Timer` listens to commands (``optdb.runtime.commands``), and has them put into a queue of its own that keeps
times: the context's does not, for that costs something. Both queues are waited for where one takes over from the other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
        self._told: tuple[Any, ...] = ()
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

    def queue(self, queue: cl.CommandQueue) -> cl.CommandQueue:
        """Return the queue that keeps times, for one that does not."""
        if queue.int_ptr not in self._queues:
            self._queues[queue.int_ptr] = queue, timed_beside(queue)
            self._beside = True
        if self._beside:
            for plain, _ in self._queues.values():
                plain.finish()
            self._beside = False
        return self._queues[queue.int_ptr][1]

    def enqueued(self, event: cl.Event) -> None:
        """Keep a command."""
        now = time.perf_counter()
        self.commands.append(Timed(*self._told, event, self._since, now))
        self._since = now

    def made(self, buffer: cl.Buffer, nbytes: int) -> None:
        """Do nothing: memory takes no time on the device."""

    def launched(
        self,
        queue: cl.CommandQueue,
        kernel: cl.Kernel,
        items: Sequence[int],
        group: Sequence[int] | None,
        args: list[Any],
        arrays: Sequence[int],
    ) -> None:
        """Take note of a launch."""
        buffers = {arg.int_ptr: arg for arg in args if isinstance(arg, cl.MemoryObject)}
        groups = None if group is None else tuple(group)
        self._told = "launch", kernel.function_name, tuple(items), groups, tuple(buffers.values()), 0

    def copied(
        self,
        queue: cl.CommandQueue,
        target: cl.Buffer,
        target_offset: int,
        source: cl.Buffer,
        source_offset: int,
        nbytes: int,
    ) -> None:
        """Take note of a copy."""
        self._tell("copy", 2 * nbytes)

    def filled(self, queue: cl.CommandQueue, target: cl.Buffer, offset: int, nbytes: int, pattern: np.generic) -> None:
        """Take note of a fill."""
        self._tell("fill", nbytes)

    def uploaded(
        self, queue: cl.CommandQueue, target: cl.Buffer, offset: int, value: np.ndarray, constant: bool
    ) -> None:
        """Take note of an upload."""
        self._tell("upload", value.nbytes)

    def downloaded(self, nbytes: int) -> None:
        """Take note of a download."""
        self._tell("download", nbytes)

    def unrepeatable(self, why: str) -> None:
        """Make way for something that is done beside."""
        self.finish()
        self._beside = True

    def _tell(self, kind: str, nbytes: int) -> None:
        self._told = kind, kind, None, None, (), nbytes

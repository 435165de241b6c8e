"""Finds out which commands a single core does as soon as a launch is made.

A command that is shared among cores may be so small that they gain less than the launch costs. How long it runs is
told by the device: for some calls, commands go through a queue that keeps times, and are waited for. That is done in
order and within calls that are made anyway, since many commands cannot be done twice. The host's clock would not do:
to wake a thread that waits takes longer than many a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from optdb.runtime.commands import EnqueueCopy, EnqueueFill, EnqueueKernel
from optdb.runtime.device_profiles import profile_of
from optdb.runtime.library import cl
from optdb.runtime.timing import seconds_of, timed_beside

__all__ = ["LAUNCH_OVERHEAD_S", "PROBED_CALLS", "Probe", "probed"]

#: Commands are timed in so many calls: the quickest counts, since other programs disturb.
PROBED_CALLS = 5
#: What a launch costs on PoCL, and what one costs that several cores share, which are woken for it.
LAUNCH_OVERHEAD_S, SHARED_LAUNCH_OVERHEAD_S = 1e-5, 2e-5


@dataclass(eq=False)
class Probe:
    """A bound command that is timed whenever it is enqueued."""

    command: Any
    #: A queue of the same device, that keeps times.
    timed: cl.CommandQueue
    #: How long the quickest ran.
    seconds: float = float("inf")

    def enqueue(self) -> None:
        """Do the command, and measure how long that takes."""
        self.command.queue.finish()
        event = self.command.enqueue_on(self.timed)
        event.wait()
        self.seconds = min(self.seconds, seconds_of(event))

    @property
    def small(self) -> bool:
        """Whether one core loses less by doing it all alone than a launch costs."""
        # At most: that the others are late has let the first one do more than its share.
        others = profile_of(self.timed.device).compute_units - 1
        return self.seconds * others < SHARED_LAUNCH_OVERHEAD_S


def probed(segments: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Return segments with a probe in place of each command, with one more queue for each queue that they use."""
    queues: dict[int, cl.CommandQueue] = {}

    def probe(command: Any) -> Any:
        if not isinstance(command, EnqueueKernel | EnqueueCopy | EnqueueFill):
            return command
        queue = command.queue
        if queue.int_ptr not in queues:
            queues[queue.int_ptr] = timed_beside(queue)
        return Probe(command, queues[queue.int_ptr])

    return [[probe(command) for command in segment] for segment in segments]

"""Finds out which commands a single core does as soon as a launch is made.

A command that is shared among cores may be so small that they gain less than the launch costs. How long it runs is
told by the device: for some calls, commands go through a queue that keeps times, and are waited for. That is done in
order and within calls that are made anyway, since many commands cannot be done twice. The host's clock would not do:
to wake a thread that waits takes longer than many a kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from optdb.runtime.device_profiles import profile_of
from optdb.runtime.library import cl
from optdb.runtime.timing import seconds_of, timed_beside

__all__ = ["CALLS", "OF_A_LAUNCH", "Probe", "probed"]

Bound = Callable[[], Any]

#: In so many calls commands are looked at: the quickest counts, since other programs disturb.
CALLS = 5
#: What a launch costs on PoCL, in seconds, and what one that several cores share, which are woken for it.
OF_A_LAUNCH, OF_A_SHARED_LAUNCH = 1e-5, 2e-5


class Probe:
    """A command that is looked at.

    Parameters
    ----------
    command : functools.partial
        That puts something into the queue that is its first argument.
    timed : pyopencl.CommandQueue
        One of the same device, that keeps times.

    Attributes
    ----------
    seconds : float
        How long the quickest ran.
    """

    def __init__(self, command: functools.partial, timed: cl.CommandQueue) -> None:
        self.command = command
        self._timed = timed
        self.seconds = float("inf")

    def __call__(self) -> None:
        """Do the command, and see how long that takes."""
        queue, *args = self.command.args
        queue.finish()
        event = self.command.func(self._timed, *args, **self.command.keywords)
        event.wait()
        self.seconds = min(self.seconds, seconds_of(event))

    @property
    def small(self) -> bool:
        """Whether one core loses less by doing it all alone than a launch costs."""
        # At most: that the others are late has let the first one do more than its share.
        others = profile_of(self._timed.device).compute_units - 1
        return self.seconds * others < OF_A_SHARED_LAUNCH


def probed(stretches: Iterable[Sequence[Bound]]) -> list[list[Bound]]:
    """Return commands, each of which is looked at, by one more queue for each that there is."""
    queues: dict[int, cl.CommandQueue] = {}

    def look_at(one: Bound) -> Bound:
        if not isinstance(one, functools.partial):
            return one
        queue = one.args[0]
        if queue.int_ptr not in queues:
            queues[queue.int_ptr] = timed_beside(queue)
        return Probe(one, queues[queue.int_ptr])

    return [[look_at(one) for one in stretch] for stretch in stretches]

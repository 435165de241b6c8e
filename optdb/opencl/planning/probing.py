"""Finds out which commands a single core does as soon as a launch is made.

A command that is shared among cores may be so small that they gain less than the launch costs. How long it takes is
seen by its own: for some calls, the device is waited for in front of each command and behind it. That is done in order
and within calls that are made anyway, since many commands cannot be done twice.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optdb.runtime.library import cl

__all__ = ["CALLS", "OF_A_LAUNCH", "Probe", "probed", "seconds_of_nothing"]

Bound = Callable[[], Any]

#: In so many calls commands are looked at: the quickest counts, since other programs disturb.
CALLS = 3
#: What a launch costs on PoCL, in seconds.
OF_A_LAUNCH = 1e-5


class Probe:
    """A command that is looked at.

    Parameters
    ----------
    command : functools.partial
        That puts something into the queue that is its first argument.

    Attributes
    ----------
    seconds : float
        How long the quickest took.
    """

    def __init__(self, command: functools.partial) -> None:
        self.command = command
        self._queue = command.args[0]
        self.seconds = float("inf")

    def __call__(self) -> None:
        """Do the command, and see how long that takes."""
        self._queue.finish()
        start = time.perf_counter()
        self.command()
        self._queue.finish()
        self.seconds = min(self.seconds, time.perf_counter() - start)

    def small(self, nothing: float) -> bool:
        """Tell whether one core does the command in less time than a launch takes.

        Parameters
        ----------
        nothing : float
            How long it takes to have next to nothing done.
        """
        # Of what all cores do at the same time, a single one does one after the other.
        cores = self._queue.device.max_compute_units
        return (self.seconds - nothing) * cores < OF_A_LAUNCH


def probed(commands: Sequence[Bound]) -> list[Bound]:
    """Return commands, each of which is looked at."""
    return [Probe(one) if isinstance(one, functools.partial) else one for one in commands]


def seconds_of_nothing(queue: cl.CommandQueue) -> float:
    """Return how long a device takes for next to nothing."""
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 8)
    nothing = Probe(functools.partial(cl.enqueue_fill_buffer, queue, buffer, np.uint64(0), 0, 8))
    for _ in range(10 * CALLS):
        nothing()
    return nothing.seconds

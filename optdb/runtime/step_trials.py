"""Trials of alternative implementations of a step, timed on the function's own calls: `StepTrial`.

Most commands cannot be repeated, since a step updates values that the next step reads. So successive calls use
different implementations.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable

from optdb.runtime.library import cl

__all__ = ["TIMED_CALLS", "StepTrial"]

#: The number of timed calls per implementation, whose median counts.
TIMED_CALLS = 5


class StepTrial:
    """Times the implementations of a step on successive calls, one implementation after another.

    A timed call starts and ends with an idle device. A call that raises an error does not count. The first call of each
    implementation except the first one does not count either: it launches kernels for the first time.

    Parameters
    ----------
    queues : iterable of pyopencl.CommandQueue
        The queues of the step's commands.
    ways : int
        The number of implementations.
    """

    def __init__(self, queues: Iterable[cl.CommandQueue], ways: int) -> None:
        self._queues = list(queues)
        self._seconds: list[list[float]] = [[] for _ in range(ways)]
        self._began: float | None = None

    @property
    def way(self) -> int | None:
        """The number of the next call's implementation; None if all have been timed."""
        timed = (TIMED_CALLS + (way > 0) for way in range(len(self._seconds)))
        return next((way for way, calls in enumerate(timed) if len(self._seconds[way]) < calls), None)

    @property
    def medians(self) -> list[float]:
        """The median seconds of a call, by implementation."""
        return [statistics.median(seconds[-TIMED_CALLS:]) for seconds in self._seconds]

    def begin(self) -> int | None:
        """Start to time a call, unless all implementations have been timed; return its implementation."""
        way = self.way
        if way is not None:
            self._finish()
            self._began = time.perf_counter()
        return way

    def end(self) -> None:
        """End the timing of a call that has enqueued all its commands."""
        way, began = self.way, self._began
        if way is None or began is None:
            return
        self._finish()
        self._seconds[way].append(time.perf_counter() - began)
        self._began = None

    def _finish(self) -> None:
        for queue in self._queues:
            queue.finish()

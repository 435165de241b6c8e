"""Finds which of some ways to do a step is the quickest, by the steps of the function itself: `StepTrial`.

Most commands cannot be repeated, since a step updates what the next one reads. So some calls go one way, and then some
another.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable

from optdb.runtime.library import cl

__all__ = ["TIMED_CALLS", "StepTrial"]

#: How many calls are timed of each way; the median counts.
TIMED_CALLS = 5


class StepTrial:
    """Times calls of one way after the other.

    A timed call begins when the device is idle, and ends when it is idle again. A call that does not end, since it
    raised an error, does not count. Neither does the first call of each way but the first: its kernels were never
    launched.

    Parameters
    ----------
    queues : iterable of pyopencl.CommandQueue
        Those that the commands of a step are enqueued on.
    ways : int
        How many there are.
    """

    def __init__(self, queues: Iterable[cl.CommandQueue], ways: int) -> None:
        self._queues = list(queues)
        self._seconds: list[list[float]] = [[] for _ in range(ways)]
        self._began: float | None = None

    @property
    def way(self) -> int | None:
        """The number of the next call's way; None if all were timed."""
        timed = (TIMED_CALLS + (way > 0) for way in range(len(self._seconds)))
        return next((way for way, calls in enumerate(timed) if len(self._seconds[way]) < calls), None)

    @property
    def medians(self) -> list[float]:
        """How many seconds a call takes each way."""
        return [statistics.median(seconds[-TIMED_CALLS:]) for seconds in self._seconds]

    def begin(self) -> int | None:
        """Begin to time a call, unless all ways were timed; return its way."""
        way = self.way
        if way is not None:
            self._finish()
            self._began = time.perf_counter()
        return way

    def end(self) -> None:
        """Note that the call that began has enqueued all its commands."""
        way, began = self.way, self._began
        if way is None or began is None:
            return
        self._finish()
        self._seconds[way].append(time.perf_counter() - began)
        self._began = None

    def _finish(self) -> None:
        for queue in self._queues:
            queue.finish()

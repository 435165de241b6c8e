"""Finds which of two ways to do a step is quicker, by the steps of the function itself: `StepTrial`.

Most commands cannot be repeated, since a step updates what the next one reads. So some calls go one way, and then some
the other.
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
    """Times calls of one way, then of another.

    A timed call begins when the device is idle, and ends when it is idle again. A call that does not end, since it
    raised an error, does not count. Neither does the first call of the second way: its kernels were never launched.

    Parameters
    ----------
    queues : iterable of pyopencl.CommandQueue
        Those that the commands of a step are enqueued on.
    """

    def __init__(self, queues: Iterable[cl.CommandQueue]) -> None:
        self._queues = list(queues)
        self._seconds: tuple[list[float], list[float]] = [], []
        self._began: float | None = None

    @property
    def way(self) -> int | None:
        """The way of the next call, 0 or 1; None if both were timed."""
        first, second = self._seconds
        if len(first) < TIMED_CALLS:
            return 0
        return 1 if len(second) <= TIMED_CALLS else None

    @property
    def medians(self) -> tuple[float, float]:
        """How many seconds a call takes each way."""
        first, second = self._seconds
        return statistics.median(first), statistics.median(second[1:])

    def begin(self) -> int | None:
        """Begin to time a call, unless both ways were timed; return its way."""
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

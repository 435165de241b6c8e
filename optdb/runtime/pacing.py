"""Keeps the queue of a GPU short enough that no enqueue waits for the device.

A driver takes a limited number of commands; the call that enqueues one more waits until the device has done some, and
holds Python's lock meanwhile, so that no other thread runs. So after each burst of commands a thread waits, without
the lock, until all but the last bursts are done: enough of them stay in the queue to keep the device busy.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Sequence
from typing import Any

from optdb.runtime.device_profiles import profile_of
from optdb.runtime.library import cl

__all__ = ["enqueue_paced"]

#: Commands between two markers, and how many bursts may be in the queue: NVIDIA's driver takes about a thousand.
BURST, BURSTS = 128, 3


class _Pace:
    """The markers in a queue, one after each burst."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        self._markers: deque[cl.Event] = deque()

    def wait(self) -> None:
        """Enqueue a marker, and wait for the one of some bursts before."""
        self._markers.append(cl.enqueue_marker(self._queue))
        if len(self._markers) >= BURSTS:
            self._markers.popleft().wait()


@functools.lru_cache(maxsize=64)
def _pace(queue: cl.CommandQueue) -> _Pace | None:
    """Return a queue's pace; None if its device computes on the host's processors, whose drivers take any number."""
    return None if profile_of(queue.device).shares_host_memory else _Pace(queue)


def enqueue_paced(commands: Sequence[Any]) -> None:
    """Enqueue bound commands, all on one queue."""
    pace = _pace(commands[0].queue) if len(commands) > BURST else None
    if pace is None:
        for command in commands:
            command.enqueue()
        return
    for start in range(0, len(commands), BURST):
        for command in commands[start : start + BURST]:
            command.enqueue()
        pace.wait()

"""Times work of a device for tuning."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: The most seconds in which work is repeated.
SECONDS = 0.05


def best_seconds(context: Context, enqueue: Callable[[], object]) -> float:
    """Return the least seconds that work takes until it is done; drivers compile and allocate before the first one."""
    enqueue()
    context.queue.finish()
    best, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        start = time.perf_counter()
        enqueue()
        context.queue.finish()
        best = min(best, time.perf_counter() - start)
    return best

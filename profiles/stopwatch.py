"""Times functions that take turns, so that a busy phase of the machine affects all of them; reads CPU seconds."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Mapping

WARM_UP = 2
"""Calls that do not count: memory is new, caches are cold."""

PAUSE = 0.05
"""Seconds before each turn, in which the threads of the one before, which wait busily for more work, go to sleep."""


def race(
    contenders: Mapping[str, Callable[[], object]], repeat: int, turn: float = 0.0, settle: float = 0.0
) -> dict[str, list[float]]:
    """Call functions in turn; return, for each function, the mean wall seconds of a call in each turn.

    In a turn, a function is called repeatedly for at least `turn` seconds. Before the first turn, each function is
    called for at least `settle` seconds, because repeated calls may get faster.
    """
    for contender in contenders.values():
        for _ in range(WARM_UP):
            contender()
        if settle:
            _call(contender, settle)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeat):
            for name, contender in contenders.items():
                time.sleep(PAUSE)
                seconds[name].append(_call(contender, turn))
    finally:
        if collecting:
            gc.enable()
    return seconds


def seconds_of(*calls: Callable[[], object]) -> float:
    """Make some calls, and return the seconds that all calls together take."""
    start = time.perf_counter()
    for call in calls:
        call()
    return time.perf_counter() - start


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its ended child processes."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def _call(contender: Callable[[], object], at_least: float) -> float:
    """Call a function repeatedly for at least `at_least` seconds; return the mean seconds of a call."""
    start, calls, taken = time.perf_counter(), 0, 0.0
    while not calls or taken < at_least:
        contender()
        calls += 1
        taken = time.perf_counter() - start
    return taken / calls

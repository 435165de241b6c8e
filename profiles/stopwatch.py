"""Wall-clock seconds of several contenders that take turns, so that a busy moment falls on all of them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

WARM_UP = 2
"""Calls that do not count: memory is new, caches are cold."""

PAUSE = 0.01
"""Seconds before each turn, in which the threads of the one before, which wait busily for more work, go to sleep."""


def race(contenders: Mapping[str, Callable[[], object]], repeat: int) -> dict[str, list[float]]:
    """Call each contender in turn.

    Parameters
    ----------
    contenders
        Name to a function that returns when its work is done.
    repeat
        How many turns each has.

    Returns
    -------
    dict
        Name to its seconds, turn by turn.
    """
    for contender in contenders.values():
        for _ in range(WARM_UP):
            contender()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeat):
            for name, contender in contenders.items():
                time.sleep(PAUSE)
                start = time.perf_counter()
                contender()
                seconds[name].append(time.perf_counter() - start)
    finally:
        if collecting:
            gc.enable()
    return seconds

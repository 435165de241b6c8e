"""Background threads whose work no call waits for: `in_background`.

Python's switch interval of five milliseconds exceeds a step of a small net. So a background thread releases the GIL
much more often: at each call of `give_way`, and for each item of `unhurried`. In other threads these functions do
nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["give_way", "in_background", "unhurried"]

Result = TypeVar("Result")
Item = TypeVar("Item")

#: Seconds that a background thread works before it yields, and the minimum pause that follows.
_WORK_S, _PAUSE_S = 1e-4, 2e-4


class _Turn(threading.local):
    """The time at which a background thread last resumed work; None in other threads."""

    since: float | None = None


_turn = _Turn()


def in_background(work: Callable[[], Result], name: str) -> Future[Result] | None:
    """Start work in a new thread, which the process waits for when it ends.

    Return None if the process is already ending and starts no more threads.

    Parameters
    ----------
    work : callable
        A function without arguments.
    name : str
        The thread's name.
    """
    thread = ThreadPoolExecutor(1, name, initializer=_begin)
    try:
        return thread.submit(work)
    except RuntimeError:
        return None
    finally:
        thread.shutdown(wait=False)


def _begin() -> None:
    _turn.since = time.perf_counter()


def give_way() -> None:
    """Let other threads run, if this is a background thread that has worked for a while."""
    since = _turn.since
    if since is not None and time.perf_counter() - since > _WORK_S:
        time.sleep(_PAUSE_S)
        _turn.since = time.perf_counter()


def unhurried(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items, and give way before each."""
    for item in items:
        give_way()
        yield item

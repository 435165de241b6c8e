"""Background threads, whose work no call waits for (`in_background`).

A training step may take less than Python's switch interval of five milliseconds, so background threads yield more
often, in `give_way` and `unhurried`. Outside background threads, `give_way` and `unhurried` never pause.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")
Item = TypeVar("Item")

#: Seconds that a background thread works before it yields, and the minimum pause that follows.
_WORK_S, _PAUSE_S = 1e-4, 2e-4


class _Turn(threading.local):
    """The time at which the current background thread last resumed work; None in other threads."""

    since: float | None = None


_turn = _Turn()


def in_background(work: Callable[[], Result], name: str) -> Future[Result] | None:
    """Start work in a new thread called `name`; return None if the process is ending.

    At its end, the process waits for the thread.
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
    """Let other threads run if this is a background thread that has not yielded for a while."""
    since = _turn.since
    if since is not None and time.perf_counter() - since > _WORK_S:
        time.sleep(_PAUSE_S)
        _turn.since = time.perf_counter()


def unhurried(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items, and call `give_way` before each."""
    for item in items:
        give_way()
        yield item

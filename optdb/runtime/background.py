"""Work of another thread, for which no call waits: `in_background`.

Python gives its lock to a thread that waits for it after five milliseconds, which is longer than a step of a small net
takes. So a thread in the background gives way much more often: wherever its work calls `give_way`, or takes items from
`unhurried`. Elsewhere these do nothing.
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

#: How long a thread in the background works before it gives way, and how long it then pauses at least.
_WORK_S, _PAUSE_S = 1e-4, 2e-4


class _Turn(threading.local):
    """Since when a thread in the background has been at work; None in other threads."""

    since: float | None = None


_turn = _Turn()


def in_background(work: Callable[[], Result], name: str) -> Future[Result] | None:
    """Begin work in a thread of its own, which a process that ends waits for.

    Return None where the process is ending already, and takes no more threads.

    Parameters
    ----------
    work : callable
        Takes no arguments.
    name : str
        Of the thread.
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
    """Let other threads run, if this one is in the background and has been at work for a while."""
    since = _turn.since
    if since is not None and time.perf_counter() - since > _WORK_S:
        time.sleep(_PAUSE_S)
        _turn.since = time.perf_counter()


def unhurried(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items, and give way before each."""
    for item in items:
        give_way()
        yield item

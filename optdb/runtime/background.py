"""Work of another thread, for which no call waits: `in_background`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_background"]

Result = TypeVar("Result")


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
    thread = ThreadPoolExecutor(1, name)
    try:
        return thread.submit(work)
    except RuntimeError:
        return None
    finally:
        thread.shutdown(wait=False)

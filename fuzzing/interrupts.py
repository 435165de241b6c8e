"""Raises an interrupt at a chosen event of a program."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["interrupt_at"]


@contextmanager
def interrupt_at(event: int) -> Iterator[Callable[[], bool]]:
    """Raise SIGINT at the event with a given number in the block; yield a function that returns whether this happened.

    Events are calls of Python functions and returns of C functions; their numbers begin with one.
    """
    left = event

    def count(frame: Any, kind: str, argument: Any) -> None:
        nonlocal left
        left -= kind in ("call", "c_return")
        if left == 0:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    # In a finalizer, Python prints an interrupt instead of raising it.
    usual_hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    sys.setprofile(count)
    try:
        yield lambda: left <= 0
    finally:
        sys.setprofile(None)
        sys.unraisablehook = usual_hook

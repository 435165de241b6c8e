"""Interrupts at chosen events of a program."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["interrupt_at"]


@contextmanager
def interrupt_at(event: int) -> Iterator[Callable[[], bool]]:
    """Raise SIGINT at one of the Python events in the block; yield a function that returns whether it was reached.

    Events are the beginning of a Python function, and the return of a C function.
    """
    left = event

    def count(frame: Any, kind: str, argument: Any) -> None:
        nonlocal left
        left -= kind in ("call", "c_return")
        if left == 0:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    # An interrupt in a finalizer is printed, and lost.
    usual_hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    sys.setprofile(count)
    try:
        yield lambda: left <= 0
    finally:
        sys.setprofile(None)
        sys.unraisablehook = usual_hook

"""Defers SIGINT while a function in the first tier runs.

Python handles signals between two nodes that it computes. C code is not interrupted there: a shared variable that one
node has overwritten gets its next value together with all others.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["deferred_interrupts"]

_state = threading.local()


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Handle a SIGINT that comes in the block when the outermost such block exits."""
    is_nested = getattr(_state, "is_deferring", False)
    usual = None if is_nested or threading.current_thread() is not threading.main_thread() else _handler()
    if usual is None:
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda *interrupt: came.append(interrupt))
    _state.is_deferring = True
    try:
        yield
    finally:
        _state.is_deferring = False
        signal.signal(signal.SIGINT, usual)
        if came and callable(usual):
            usual(*came[-1])
        elif came:
            signal.raise_signal(signal.SIGINT)


def _handler() -> signal._HANDLER:
    """Return the handler in force; None for one that Python does not know, and cannot restore."""
    return signal.getsignal(signal.SIGINT)

"""Serializes calls to tiered functions, and defers SIGINT during calls that overwrite shared variables.

C code holds the GIL for a whole call. In Python code, another thread or a signal handler may run when only some of the
variables have been updated.
"""

from __future__ import annotations

import _signal  # `signal` wraps this C module, which takes plain numbers and needs a tenth of the time
import os
import signal
import threading
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

_SIGINT = int(signal.SIGINT)


class _DeferredInterrupts:
    """A reentrant context manager that defers SIGINT until the outermost block exits."""

    def __init__(self) -> None:
        #: For each entered block, the handler that is restored at the block's exit; None if no handler is restored.
        self._handlers: list[Any] = []
        self._came: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        handler = _signal.getsignal(_SIGINT)
        # None means that the present handler was not installed from Python; such a handler cannot be restored.
        if handler is None or handler == self._note:
            self._handlers.append(None)
            return
        self._came = None
        _signal.signal(_SIGINT, self._note)
        self._handlers.append(handler)

    def __exit__(self, *error: object) -> None:
        handler = self._handlers.pop() if threading.current_thread() is threading.main_thread() else None
        if handler is None:
            return
        _signal.signal(_SIGINT, handler)
        came, self._came = self._came, None
        if came is not None and callable(handler):
            handler(*came)
        elif came is not None:
            signal.raise_signal(signal.SIGINT)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame


class _UninterruptedTurn:
    """A reentrant context manager that holds the lock `turn` and defers SIGINT."""

    def __enter__(self) -> None:
        deferred_interrupts.__enter__()
        turn.acquire()

    def __exit__(self, *error: object) -> None:
        turn.release()
        deferred_interrupts.__exit__()


#: All functions use one lock, because they share variables. With a lock for each function, functions that call each
#: other could deadlock.
turn = threading.RLock()
deferred_interrupts = _DeferredInterrupts()
_uninterrupted_turn = _UninterruptedTurn()

# Hold the lock during a fork, so that the process forks between two calls, as it would with C code.
os.register_at_fork(before=turn.acquire, after_in_parent=turn.release, after_in_child=turn.release)


def exclusive() -> AbstractContextManager[object]:
    """Return a context manager that holds the lock `turn`."""
    return turn


def uninterrupted() -> AbstractContextManager[object]:
    """Return a context manager that holds the lock `turn` and defers interrupts."""
    return _uninterrupted_turn

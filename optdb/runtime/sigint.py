"""Defers SIGINT, so that a call commits all its updates or none.

An interrupt before a call's :func:`commit_point` ends the call, and leaves shared arrays unchanged; a later interrupt
waits for the end of the call.
"""

from __future__ import annotations

import _signal  # the C module that `signal` wraps; calls to the C module take a tenth of the time
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

_SIGINT = int(signal.SIGINT)


def defer_sigint(call: Callable[..., T], *args: Any) -> T:
    """Call a function; after its `commit_point`, defer SIGINT until the outermost call of `defer_sigint` returns.

    A context manager would not be safe: an interrupt while ``__enter__`` returns would skip ``__exit__``.
    """
    if _state.holder is not None:
        return call(*args)
    holder = _Holder()
    try:
        _state.holder = holder
        return call(*args)
    finally:
        # Python raises interrupts only at calls, and no call is made between the return above and this line.
        _state.holder = None
        holder.release()


def without_sigint(call: Callable[..., T], *args: Any) -> T:
    """Call a function and defer SIGINT until it returns, or until the outermost call of `defer_sigint` returns."""

    def commit() -> T:
        commit_point()
        return call(*args)

    return defer_sigint(commit)


def repeat_without_sigint(call: Callable[[], object], times: int) -> None:
    """Call a function several times; an interrupt waits for the end of the current call."""
    while times:
        times = defer_sigint(_repeated, call, times)


def _repeated(call: Callable[[], object], times: int) -> int:
    commit_point()
    holder = _state.holder
    for left in reversed(range(times)):
        call()
        if holder is not None and holder.came is not None:
            return left
    return 0


def commit_point() -> None:
    """Defer SIGINT until the outermost call of `defer_sigint` in this thread returns."""
    if _state.holder is not None:
        _state.holder.hold()


class _Holder:
    """Replaces the SIGINT handler in the main thread, the only thread that receives interrupts."""

    def __init__(self) -> None:
        self._usual: Any = None
        #: The SIGINT that is waiting to be handled.
        self.came: tuple[int, FrameType | None] | None = None

    def hold(self) -> None:
        """Replace the handler if this is the main thread."""
        if self._usual is not None or threading.current_thread() is not threading.main_thread():
            return
        self._usual = _signal.getsignal(_SIGINT)
        if self._usual is not None:  # None means that the handler was not set from Python and cannot be restored
            _signal.signal(_SIGINT, self._note)

    def release(self) -> None:
        """Restore the original handler and pass a deferred interrupt to it."""
        if self._usual is None:
            return
        _signal.signal(_SIGINT, self._usual)
        if self.came is None:
            return
        if callable(self._usual):
            self._usual(*self.came)
        elif self._usual == signal.SIG_DFL:
            os.kill(os.getpid(), _SIGINT)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = number, frame


class _OfThread(threading.local):
    #: The `_Holder` that the thread's outermost call of `defer_sigint` created; None outside such calls.
    holder: _Holder | None = None


_state = _OfThread()

"""Defers SIGINT, so that a call commits its updates wholly or not at all.

A call writes the next values of its shared arrays at its end. Until then an interrupt loses nothing. From the
:func:`commit_point` on, an interrupt waits for the end of the call: a few commands more, which are only enqueued.
"""

from __future__ import annotations

import _signal  # the C module below `signal`: it takes plain numbers, in a tenth of the time
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["commit_point", "defer_sigint"]

_SIGINT = int(signal.SIGINT)

_state = threading.local()


@contextmanager
def defer_sigint() -> Iterator[None]:
    """Defer SIGINT from the block's `commit_point` on until the outermost such block exits."""
    if getattr(_state, "holder", None) is not None:
        yield
        return
    holder = _state.holder = _Holder()
    try:
        yield
    finally:
        _state.holder = None
        holder.release()


def commit_point() -> None:
    """Defer SIGINT from now on, until the outermost `defer_sigint` of this thread exits."""
    holder = getattr(_state, "holder", None)
    if holder is not None:
        holder.hold()


class _Holder:
    """Stands in for the handler of SIGINT. Only the main thread is interrupted, and may set it."""

    def __init__(self) -> None:
        #: None until it has taken over.
        self._usual: Any = None
        self._came: tuple[int, FrameType | None] | None = None

    def hold(self) -> None:
        """Take over, if this is the main thread."""
        if self._usual is not None or threading.current_thread() is not threading.main_thread():
            return
        self._usual = _signal.getsignal(_SIGINT)
        if self._usual is not None:  # None is a handler that Python does not know, and cannot put back
            _signal.signal(_SIGINT, self._note)

    def release(self) -> None:
        """Restore the usual handler, and pass a deferred interrupt to it."""
        if self._usual is None:
            return
        _signal.signal(_SIGINT, self._usual)
        if self._came is None:
            return
        if callable(self._usual):
            self._usual(*self._came)
        elif self._usual == signal.SIG_DFL:
            os.kill(os.getpid(), _SIGINT)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame

"""Warns, once per program including its child processes, that a function is too small for a device."""

from __future__ import annotations

import atexit
import hashlib
import multiprocessing
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from optdb.callers import caller_level

__all__ = ["SizeNote", "TooSmallWarning"]

#: Untimed calls: small launches are merged by then.
_WARMUP_CALLS = 500
_TIMED_CALLS = 20
#: A shorter call, in seconds, mostly consists of launches and waiting, on any device.
SMALL_CALL_S = 1.5e-4


class TooSmallWarning(UserWarning):
    """A function is so short that PyTensor's default mode is likely to be faster."""


def _mark() -> Path:
    """Return the file that exists once a process has warned; its name is a hash of a key that all processes inherit."""
    key = bytes(multiprocessing.current_process().authkey)
    return Path(tempfile.gettempdir(), f"optdb-too-small-{hashlib.sha256(key).hexdigest()[:32]}")


def _is_first() -> bool:
    """Return whether no process of this program has warned before, and record that one has now."""
    try:
        _mark().touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@atexit.register
def _forget() -> None:
    if multiprocessing.parent_process() is None:
        _mark().unlink(missing_ok=True)


class SizeNote:
    """Times some calls of a function, and warns if they are short.

    Parameters
    ----------
    function : callable
        Computes a call.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._calls = 0
        self._times_s: list[float] = []
        #: Whether timing is over.
        self.done = False

    def call(self, args: Any) -> Any:
        """Call the function, and time the call after warm-up."""
        self._calls += 1
        if self._calls <= _WARMUP_CALLS:
            return self._function(args)
        start = time.perf_counter()
        result = self._function(args)
        self._times_s.append(time.perf_counter() - start)
        if len(self._times_s) == _TIMED_CALLS:
            self.done = True
            self._decide(median(self._times_s))
        return result

    def _decide(self, call_s: float) -> None:
        if call_s >= SMALL_CALL_S or not _is_first():
            return
        warnings.warn(
            f"A function in mode OPENCL takes {call_s * 1e6:.0f} microseconds a call, most of which are launches. A "
            "device pays off from some 20,000 elements on; for smaller models, leave out mode='OPENCL', and PyTensor's "
            "default compiles them.",
            TooSmallWarning,
            stacklevel=caller_level(),
        )

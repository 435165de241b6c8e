"""Tells, once, that a function is too small for a device to gain anything."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

__all__ = ["SizeNote", "TooSmallWarning"]

#: Calls before the ones that are timed: small launches are merged by then.
_WARMUP_CALLS = 500
_TIMED_CALLS = 20
#: A call that takes less, in seconds, is mostly launches and waiting, on any device.
SMALL_CALL_S = 1.5e-4


class TooSmallWarning(UserWarning):
    """A function takes so little time that PyTensor's default mode is likely to be faster."""


class SizeNote:
    """Times some calls of a function, and warns if they are short.

    Parameters
    ----------
    function : callable
        What a call computes.
    """

    #: Whether a function of this process has warned already.
    warned = False

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._calls = 0
        self._times_s: list[float] = []
        #: Whether nothing is left to decide.
        self.done = False

    def call(self, args: Any) -> Any:
        """Call the function, and time it if that is due."""
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
        if call_s >= SMALL_CALL_S or SizeNote.warned:
            return
        SizeNote.warned = True
        warnings.warn(
            f"A function in mode OPENCL takes {call_s * 1e6:.0f} microseconds a call, most of which are launches. A "
            "device pays off from some 20,000 elements on; for smaller models, leave out mode='OPENCL', and PyTensor's "
            "default compiles them.",
            TooSmallWarning,
            stacklevel=4,
        )

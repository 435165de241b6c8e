"""Finds the user code that a warning refers to."""

from __future__ import annotations

import sys
from types import FrameType

__all__ = ["caller_level"]

#: Packages whose frames may lie between the user's code and a warning; imports and decorators add such frames.
_WITHIN = ("optdb", "pytensor", "theano", "importlib", "functools", "contextlib")


def caller_level() -> int:
    """Return the stack level of the code that called the host or optdb, counted as in `warnings.warn`."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _WITHIN:
        frame, level = frame.f_back, level + 1
    return level

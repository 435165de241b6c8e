"""Who calls a function of PyTensor's."""

from __future__ import annotations

import sys
from types import FrameType

__all__ = ["caller_level"]

#: The packages between the user's code and a warning.
_WITHIN = ("optdb.pytensor.", "pytensor.")


def caller_level() -> int:
    """Return the level, as `warnings.warn` counts it, of the code that calls the function that is computing."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_WITHIN):
        frame, level = frame.f_back, level + 1
    return level

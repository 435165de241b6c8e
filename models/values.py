"""Computes differences between values, and nudges values by small amounts to show how rounding affects a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from profiles import training
from profiles.training import value_difference as difference

__all__ = ["DEVICE_TOLERANCE", "HOST_TOLERANCE", "difference", "is_finite", "nudged"]

#: For each floatX, the largest accepted difference from stock, relative to the largest number of an array.
HOST_TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
DEVICE_TOLERANCE = {"float32": 1e-4, "float64": 1e-9}

UNITS = 4
"""How many units in the last place a nudge is."""


def is_finite(value: Any) -> bool:
    """Return whether all numbers in a value are finite; True if the value has no numbers."""
    return not isinstance(value, np.ndarray) or value.dtype.kind not in "fc" or bool(np.isfinite(value).all())


def nudged(value: Any, seed: int) -> Any:
    """Increase or decrease each number of a float array by a few units in the last place; return the new array."""
    return training.nudged(value, seed, UNITS)

"""Differences between values, and the nudges that show the effect of rounding on a model."""

from __future__ import annotations

from typing import Any

import numpy as np

from profiles import training

#: Maps floatX to the largest accepted difference from stock, relative to the largest number of an array.
HOST_TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
DEVICE_TOLERANCE = {"float32": 1e-4, "float64": 1e-9}

UNITS = 4
"""How many units in the last place a nudge is."""


def difference(a: Any, b: Any) -> float:
    """Return the largest difference of two values, relative to the largest number; infinite if the types differ."""
    if isinstance(a, np.random.RandomState):
        return 0.0 if _same_state(a, b) else np.inf
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype:
        return np.inf
    if a.dtype.kind not in "fc":
        return 0.0 if np.array_equal(a, b) else np.inf
    return training.difference(a, b)


def is_finite(value: Any) -> bool:
    """Return whether all numbers in a value are finite; True if the value has no numbers."""
    return not isinstance(value, np.ndarray) or value.dtype.kind not in "fc" or bool(np.isfinite(value).all())


def _same_state(a: np.random.RandomState, b: np.random.RandomState) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a.get_state(), b.get_state()))


def nudged(value: Any, seed: int) -> Any:
    """Return a float array in which each number is increased or decreased by a few units in the last place."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    signs = np.random.default_rng(seed).choice([-1, 1], value.shape)
    return (value * (1 + signs * UNITS * np.finfo(value.dtype).eps)).astype(value.dtype)

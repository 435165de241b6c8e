"""Compares a device's results with the host's results, within tolerances that depend on the dtype.

Two numbers agree if their difference is at most a relative tolerance plus a smaller fraction of the array's largest
number (`TOLERANCES`). A sum whose terms cancel may legitimately differ by more. If numbers disagree, the host therefore
repeats the computation with inputs perturbed by a few units in the last place. An element may differ by a multiple
(`FREEDOM`) of the change that the perturbation causes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Maps the dtype of the real part to two tolerances, relative to each number and relative to the largest number.
TOLERANCES = {"float16": (1e-2, 1e-3), "float32": (1e-4, 1e-6), "float64": (1e-8, 1e-10)}
#: How often the host repeats the computation.
TRIALS = 4
#: Maximum perturbation of inputs, in units in the last place.
UNITS = 2
#: Allowed multiple of the change that a perturbation causes.
FREEDOM = 16


@dataclass(frozen=True, eq=False)
class Difference:
    """How two values differ."""

    #: Description of the difference.
    what: str
    #: Index of the largest difference; None if the values cannot be compared elementwise.
    index: tuple[int, ...] | None
    #: The two numbers at `index`, or the two shapes, or the two values.
    on_device: Any
    on_host: Any
    #: The number of elements that differ, and the number of all elements.
    count: int
    size: int
    #: Allowed difference at `index`.
    tolerance: float | None
    #: The complete values.
    device: Any
    host: Any


def compare(
    device: Any, host: Any, equal: Callable[[Any, Any], bool], again: Callable[[], Sequence[Any]] | None = None
) -> Difference | None:
    """Compare two host values, which may be arrays or other objects; return None if they agree.

    `equal` compares values that are not arrays. `again` returns the host's results for perturbed inputs; it is called
    only if the two values disagree.
    """
    arrays = isinstance(device, np.ndarray) and isinstance(host, np.ndarray)
    if arrays and device.shape != host.shape:
        return Difference("the shapes differ", None, device.shape, host.shape, 1, 1, None, device, host)
    if arrays and device.dtype != host.dtype:
        return Difference("the dtypes differ", None, device.dtype, host.dtype, 1, 1, None, device, host)
    if arrays and not device.size:
        return None
    if not arrays or device.dtype == object:
        if equal(device, host):
            return None
        return Difference("the values differ", None, device, host, 1, 1, None, device, host)
    allowed = _allowed(host)
    far = _distances(device, host)
    if (far <= allowed).all():
        return None
    if again is not None:
        moved = np.max([_distances(np.asarray(other), host) for other in again()], axis=0)
        allowed = allowed + FREEDOM * moved
        if (far <= allowed).all():
            return None
    return _largest(device, host, far, allowed)


def nudged(value: Any, random: np.random.RandomState) -> Any:
    """Return a value with its floats perturbed by up to `UNITS` units in the last place."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fc" or not value.size:
        return value
    factor = 1 + UNITS * np.finfo(value.dtype).eps * (2 * random.rand(*value.shape) - 1)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(value * factor, value.dtype)


def _wide(value: np.ndarray) -> np.ndarray:
    """Return numbers in a dtype that can represent their differences."""
    return value.astype(np.result_type(value.dtype, "float64"))


def _allowed(host: np.ndarray) -> np.ndarray | float:
    """Return the allowed difference for each element; integers must be equal."""
    if host.dtype.kind not in "fc":
        return 0.0
    relative, absolute = TOLERANCES[np.finfo(host.dtype).dtype.name]
    size = np.abs(_wide(host))
    finite = np.where(np.isfinite(size), size, 0)
    return relative * finite + absolute * finite.max()


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return elementwise distances, infinite if only one element is finite or if non-finite elements differ."""
    if a.dtype.kind not in "fc":  # 64-bit integers that differ may be the same float
        return np.where(a == b, 0.0, np.maximum(np.abs(_wide(a) - _wide(b)), 1.0))
    with np.errstate(over="ignore", invalid="ignore"):
        far = np.abs(_wide(a) - _wide(b))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isfinite(far), far, np.inf))


def _largest(device: np.ndarray, host: np.ndarray, far: np.ndarray, allowed: Any) -> Difference:
    allowed = np.broadcast_to(allowed, far.shape)
    beyond = np.where(far > allowed, far, -1.0)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(beyond)), far.shape))
    finite = bool(np.isfinite(far[index]))
    what = f"by {far[index]:.3g} at most" if finite else "the elements that are not finite differ"
    return Difference(
        *(what, index, device[index], host[index], int((beyond >= 0).sum()), far.size),
        *(float(allowed[index]), device, host),
    )

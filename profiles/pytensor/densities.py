"""Compiles a model's log density with its gradient, and draws points at which to evaluate them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pymc as pm

from profiles.pytensor import models, sides

__all__ = ["Density", "compiled", "difference", "evaluate", "points_of"]

#: Standard deviation of the normal numbers that are added to the model's initial point.
DISTANCE = 0.1


@dataclass(frozen=True)
class Density:
    """A compiled function for the log density and its gradient, as samplers use it, and vectors to call it with."""

    function: Callable[[np.ndarray], Sequence[np.ndarray]]
    points: list[np.ndarray]

    def __call__(self, point: np.ndarray) -> list[np.ndarray]:
        """Return the values at a point as NumPy arrays; the conversion waits for values that JAX still computes."""
        return [np.asarray(value) for value in self.function(point)]


def points_of(model: pm.Model, count: int, seed: int = 0) -> list[np.ndarray]:
    """Return vectors of parameters near a model's initial point; each call returns the same vectors."""
    values = model.initial_point(random_seed=seed)
    start = np.concatenate([np.ravel(values[variable.name]) for variable in model.continuous_value_vars])
    rng = np.random.default_rng(seed)
    return [(start + DISTANCE * rng.normal(size=start.size)).astype(start.dtype) for _ in range(count)]


def compiled(name: str, size: int, side: str, count: int = 3) -> Density:
    """Build a model, compile its log density and gradient in a configuration, and draw points to evaluate them at."""
    mode = sides.load(side)
    model = models.build(name, size)
    function = model.logp_dlogp_function(ravel_inputs=True, mode=mode)
    return Density(function._pytensor_function, points_of(model, count))


def evaluate(name: str, size: int, side: str, count: int = 3) -> list[list[list[float]]]:
    """Return the log density and the gradient at each point, as lists of numbers."""
    density = compiled(name, size, side, count)
    return [[np.ravel(value).tolist() for value in density(point)] for point in density.points]


def difference(expected: Sequence[float], computed: Sequence[float]) -> float:
    """Return the largest difference relative to the largest expected number; infinite if NaN or infinities differ."""
    one, other = np.asarray(expected, "float64"), np.asarray(computed, "float64")
    finite = np.isfinite(one)
    if one.shape != other.shape or not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    if not np.isfinite(other[finite]).all():
        return float("inf")
    distance = np.abs(one[finite] - other[finite]).max()
    largest = np.abs(one[finite]).max()
    return float(distance / largest if largest else distance)

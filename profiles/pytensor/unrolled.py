"""Builds graphs of any size: unrolled recurrences, and models with any number of parts.

Each builder returns the inputs, the outputs and the updates of a function: ``build("garch", 50)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

__all__ = ["GRAPHS", "Graph", "build", "of_model"]


@dataclass(frozen=True)
class Graph:
    """The inputs, outputs and updates of a function."""

    inputs: list[Any]
    outputs: list[Any]
    updates: dict[Any, Any] = field(default_factory=dict)


def _random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def gru(steps: int = 30, width: int = 8, classes: int = 5) -> Graph:
    """Return a training step of a GRU with Adam; its sigmoids are written as ``1 / (1 + exp(-x))``."""
    x, labels = pt.tensor3("x", dtype="float64"), pt.ivector("labels")
    rng = np.random.default_rng(6)

    def weights(*shape: int) -> Any:
        return pytensor.shared(rng.normal(size=shape) * 0.3)

    inward = [weights(width, width) for _ in range(3)]
    across = [weights(width, width) for _ in range(3)]
    biases = [weights(width) for _ in range(3)]
    matrix, offset = weights(width, classes), weights(classes)
    hidden = pt.zeros((x.shape[1], width), dtype="float64")
    for t in range(steps):
        reset, update = (1 / (1 + pt.exp(-(x[t].dot(inward[k]) + hidden.dot(across[k]) + biases[k]))) for k in range(2))
        new = pt.tanh(x[t].dot(inward[2]) + (reset * hidden).dot(across[2]) + biases[2])
        hidden = (1 - update) * hidden + update * new
    logits = hidden.dot(matrix) + offset
    logp = logits - pt.logsumexp(logits, axis=1, keepdims=True)
    cost = -logp[pt.arange(labels.shape[0]), labels].mean()
    return Graph([x, labels], [cost], _adam(cost, [*inward, *across, *biases, matrix, offset]))


def _adam(cost: Any, parameters: list[Any]) -> dict[Any, Any]:
    count = pytensor.shared(0.0)
    now = count + 1
    updates = {count: now}
    for parameter, gradient in zip(parameters, pt.grad(cost, parameters), strict=True):
        mean, square = (pytensor.shared(np.zeros_like(parameter.get_value())) for _ in range(2))
        updates[mean] = 0.9 * mean + 0.1 * gradient
        updates[square] = 0.999 * square + 0.001 * pt.sqr(gradient)
        scale = pt.sqrt(updates[square] / (1 - 0.999**now)) + 1e-8
        updates[parameter] = parameter - 1e-3 * updates[mean] / (1 - 0.9**now) / scale
    return updates


def _with_gradient(point: Any, logp: Any) -> Graph:
    return Graph([point], [logp, pt.grad(logp, point)])


def garch(steps: int = 50) -> Graph:
    """Return the log density of a GARCH(1, 1) process, unrolled, and the gradient of this density."""
    y = _random(steps)
    point = pt.vector("point", dtype="float64", shape=(4,))
    mean, omega, alpha, beta = point[0], pt.exp(point[1]), pt.sigmoid(point[2]), pt.sigmoid(point[3])
    variance, logp = omega / (3.5 - alpha - beta), 0.0
    for t in range(steps):
        error = y[t] - mean
        logp = logp - 0.5 * pt.log(2 * np.pi * variance) - 0.5 * error**2 / variance
        variance = omega + alpha * error**2 + beta * variance
    return _with_gradient(point, logp)


def ode(steps: int = 20) -> Graph:
    """Return the log density of a predator-prey system and its gradient; the Runge-Kutta steps are unrolled."""
    observed = np.abs(_random(steps, 2)) + 1
    point = pt.vector("point", dtype="float64", shape=(6,))
    a, b, c, d, prey, predators = (pt.exp(point[i]) for i in range(6))
    step, logp = 0.1, 0.0

    def slope(x: Any, y: Any) -> tuple[Any, Any]:
        return a * x - b * x * y, -c * y + d * x * y

    for t in range(steps):
        k1 = slope(prey, predators)
        k2 = slope(prey + step / 2 * k1[0], predators + step / 2 * k1[1])
        k3 = slope(prey + step / 2 * k2[0], predators + step / 2 * k2[1])
        k4 = slope(prey + step * k3[0], predators + step * k3[1])
        prey = prey + step / 6 * (k1[0] + 2 * k2[0] + 2 * k3[0] + k4[0])
        predators = predators + step / 6 * (k1[1] + 2 * k2[1] + 2 * k3[1] + k4[1])
        logp = logp - 0.5 * (pt.log(prey) - np.log(observed[t, 0])) ** 2
        logp = logp - 0.5 * (pt.log(predators) - np.log(observed[t, 1])) ** 2
    return _with_gradient(point, logp)


def kalman(steps: int = 20) -> Graph:
    """Return the log density of a linear state space model, and its gradient; the Kalman filter is unrolled."""
    y = _random(steps, 1)
    point = pt.vector("point", dtype="float64", shape=(4,))
    transition = pt.stack([pt.stack([1.0, pt.tanh(point[0])]), pt.stack([0.0, pt.tanh(point[1])])])
    design = np.array([[1.0, 0.0]])
    noise, error_noise = pt.diag(pt.exp(point[2]) * pt.ones(2)), pt.exp(point[3]) * np.eye(1)
    mean, covariance, logp = pt.zeros(2), pt.eye(2), 0.0
    for t in range(steps):
        mean, covariance = transition @ mean, transition @ covariance @ transition.T + noise
        spread, error = design @ covariance @ design.T + error_noise, y[t] - design @ mean
        inverse = pt.linalg.inv(spread)
        gain = covariance @ design.T @ inverse
        logp = logp - 0.5 * (pt.log(pt.linalg.det(spread)) + error @ inverse @ error)
        mean, covariance = mean + gain @ error, covariance - gain @ design @ covariance
    return _with_gradient(point, logp)


def of_model(model: Any) -> Graph:
    """Return the log density of a PyMC model and its gradient."""
    variables = model.continuous_value_vars
    logp = model.logp()
    return Graph(variables, [logp, *pt.grad(logp, variables)])


def mixture_of_mixtures(parts: int = 4) -> Graph:
    """Return the log density and the gradient of a mixture of mixtures of three normal distributions."""
    import pymc as pm

    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(parts))
        components = [
            pm.NormalMixture.dist(
                pm.Dirichlet(f"weights{k}", np.ones(3)),
                pm.Normal(f"mean{k}", 0, 1, shape=3),
                pm.HalfNormal(f"scale{k}", 1, shape=3),
            )
            for k in range(parts)
        ]
        pm.Mixture("y", weights, components, observed=_random(200))
    return of_model(model)


def additive_gp(parts: int = 8) -> Graph:
    """Return the log density and the gradient of a Gaussian process whose covariance is a sum of `parts` kernels."""
    import pymc as pm

    with pm.Model() as model:
        covariance: Any = 0
        for k in range(parts):
            scale, length = pm.HalfNormal(f"scale{k}", 1), pm.Gamma(f"length{k}", 2, 1)
            covariance = covariance + scale**2 * pm.gp.cov.ExpQuad(parts, length, active_dims=[k])
        process = pm.gp.Marginal(cov_func=covariance)
        process.marginal_likelihood("y", X=_random(30, parts), y=_random(30, seed=1), sigma=pm.HalfNormal("noise", 1))
    return of_model(model)


#: Maps the name of a graph to a builder that takes a size.
GRAPHS: dict[str, Callable[[int], Graph]] = {
    "gru": gru,
    "garch": garch,
    "ode": ode,
    "kalman": kalman,
    "mixture_of_mixtures": mixture_of_mixtures,
    "additive_gp": additive_gp,
}


def build(name: str, size: int) -> Graph:
    """Build the graph with a given name and size."""
    return GRAPHS[name](size)

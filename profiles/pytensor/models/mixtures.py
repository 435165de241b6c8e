"""Mixtures of normal distributions, with a fixed number of components and with a Dirichlet process."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.pytensorf import floatX


def gaussian(observations: int, components: int = 3, seed: int = 5) -> pm.Model:
    """Build a mixture of normal distributions, whose components are summed out."""
    rng = np.random.default_rng(seed)
    centers = np.linspace(-3, 3, components)
    y = rng.normal(centers[rng.integers(0, components, observations)], 0.8)
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", floatX(np.ones(components)))
        ordered = pm.distributions.transforms.ordered
        centers = pm.Normal("centers", 0, 5, shape=components, transform=ordered, initval=floatX(centers))
        spread = pm.HalfNormal("spread", 2, shape=components)
        pm.NormalMixture("y", weights, centers, sigma=spread, observed=y)
    return model


def dirichlet_process(observations: int, components: int = 10, seed: int = 6) -> pm.Model:
    """Build a Dirichlet process mixture by breaking a stick, cut off after some components."""
    rng = np.random.default_rng(seed)
    y = rng.normal(np.array([-2.0, 0.5, 3.0])[rng.integers(0, 3, observations)], 0.5)
    with pm.Model() as model:
        concentration = pm.Gamma("concentration", 1, 1)
        parts = pm.Beta("parts", 1, concentration, shape=components - 1)
        left = pt.concatenate([[1.0], pt.cumprod(1 - parts)])
        weights = left * pt.concatenate([parts, [1.0]])
        centers = pm.Normal("centers", 0, 3, shape=components)
        precision = pm.Gamma("precision", 2, 1, shape=components)
        pm.NormalMixture("y", weights, centers, tau=precision, observed=y)
    return model

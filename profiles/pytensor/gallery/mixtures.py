"""Mixtures of counts, of regressions and of normal vectors."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

_ordered = pm.distributions.transforms.ordered


def poissons() -> pm.Model:
    """Build a mixture of two Poisson distributions."""
    rng = np.random.default_rng(41)
    y = rng.poisson(np.where(rng.random(300) < 0.4, 2.0, 9.0))
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(2))
        rates = pm.LogNormal("rates", 1, 1, shape=2, initval=np.array([2.0, 8.0]))
        pm.Mixture("y", w=weights, comp_dists=pm.Poisson.dist(rates, shape=2), observed=y)
    return model


def different_distributions() -> pm.Model:
    """Build a mixture of a normal distribution and a heavy-tailed one."""
    rng = np.random.default_rng(42)
    with pm.Model() as model:
        share = pm.Beta("share", 2, 2)
        center, spread = pm.Normal("center", 0, 2), pm.HalfNormal("spread", 2)
        components = [pm.Normal.dist(center, spread), pm.StudentT.dist(nu=3, mu=center, sigma=5 * spread)]
        pm.Mixture("y", w=pt.stack([share, 1 - share]), comp_dists=components, observed=rng.standard_t(3, size=200))
    return model


def regressions() -> pm.Model:
    """Build a mixture of regressions."""
    rng = np.random.default_rng(43)
    x = rng.normal(size=250)
    y = np.where(rng.random(250) < 0.5, 2 * x, -x) + 0.3 * rng.normal(size=250)
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 2, shape=2, transform=_ordered, initval=np.array([-1.0, 1.0]))
        noise = pm.HalfNormal("noise", 1)
        weights = pm.Dirichlet("weights", np.ones(2))
        pm.NormalMixture("y", w=weights, mu=x[:, None] * slopes, sigma=noise, observed=y)
    return model


def normal_vectors() -> pm.Model:
    """Build a mixture of normal vectors."""
    rng = np.random.default_rng(44)
    y = np.concatenate([rng.normal(-2, 1, (60, 2)), rng.normal(2, 1, (60, 2))])
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(2))
        centers = pm.Normal("centers", 0, 3, shape=(2, 2))
        components = [pm.MvNormal.dist(centers[number], np.eye(2)) for number in range(2)]
        pm.Mixture("y", w=weights, comp_dists=components, observed=y)
    return model

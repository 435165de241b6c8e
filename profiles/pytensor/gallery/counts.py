"""Counts and classes: zero-inflated, overdispersed, ordinal and categorical."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def _regressors(rng: np.random.Generator, rows: int) -> np.ndarray:
    return np.column_stack([np.ones(rows), rng.normal(size=(rows, 2))])


def zero_inflated_poisson() -> pm.Model:
    """Build counts with more zeros than a Poisson distribution has."""
    rng = np.random.default_rng(31)
    x = _regressors(rng, 500)
    y = rng.poisson(np.exp(0.5 + 0.3 * x[:, 1])) * (rng.random(500) < 0.7)
    with pm.Model() as model:
        weights = pm.Normal("weights", 0, 1, shape=3)
        share = pm.Beta("share", 2, 2)
        pm.ZeroInflatedPoisson("y", psi=share, mu=pt.exp(x @ weights), observed=y)
    return model


def zero_inflated_negative_binomial() -> pm.Model:
    """Build overdispersed counts with more zeros, whose share depends on regressors."""
    rng = np.random.default_rng(32)
    x = _regressors(rng, 500)
    y = rng.negative_binomial(2, 0.4, 500) * (rng.random(500) < 0.6)
    with pm.Model() as model:
        weights, zeros = pm.Normal("weights", 0, 1, shape=3), pm.Normal("zeros", 0, 1, shape=3)
        alpha = pm.Exponential("alpha", 0.5)
        share = pm.math.sigmoid(x @ zeros)
        pm.ZeroInflatedNegativeBinomial("y", psi=share, mu=pt.exp(x @ weights), alpha=alpha, observed=y)
    return model


def hurdle_gamma() -> pm.Model:
    """Build amounts that are zero or gamma distributed."""
    rng = np.random.default_rng(33)
    y = rng.gamma(2.0, 1.5, 300) * (rng.random(300) < 0.6)
    with pm.Model() as model:
        share, alpha, beta = pm.Beta("share", 1, 1), pm.Exponential("alpha", 1), pm.Exponential("beta", 1)
        pm.HurdleGamma("y", psi=share, alpha=alpha, beta=beta, observed=y)
    return model


def negative_binomial() -> pm.Model:
    """Build a regression for overdispersed counts."""
    rng = np.random.default_rng(34)
    x = _regressors(rng, 400)
    with pm.Model() as model:
        weights = pm.Normal("weights", 0, 1, shape=3)
        alpha = pm.HalfNormal("alpha", 5)
        pm.NegativeBinomial("y", mu=pt.exp(x @ weights), alpha=alpha, observed=rng.negative_binomial(3, 0.5, 400))
    return model


def beta_binomial() -> pm.Model:
    """Build shares of successes that vary between groups."""
    rng = np.random.default_rng(35)
    trials = rng.integers(5, 40, 80)
    with pm.Model() as model:
        mean, total = pm.Beta("mean", 1, 1), pm.Exponential("total", 0.1)
        y = rng.binomial(trials, rng.beta(2, 3, 80))
        pm.BetaBinomial("y", n=trials, alpha=mean * total, beta=(1 - mean) * total, observed=y)
    return model


def dirichlet_multinomial() -> pm.Model:
    """Build overdispersed counts in several classes."""
    rng = np.random.default_rng(36)
    y = np.stack([rng.multinomial(30, rng.dirichlet([2.0, 3.0, 4.0])) for _ in range(40)])
    with pm.Model() as model:
        shares = pm.Dirichlet("shares", np.ones(3))
        total = pm.LogNormal("total", 1, 1)
        pm.DirichletMultinomial("y", n=np.full(40, 30), a=shares * total, observed=y)
    return model


def ordered_probit() -> pm.Model:
    """Build an ordinal regression with a probit link."""
    rng = np.random.default_rng(37)
    x = rng.normal(size=300)
    y = np.digitize(x + rng.normal(size=300), [-1.0, 0.0, 1.0])
    with pm.Model() as model:
        cuts = pm.Normal(
            "cuts",
            0,
            2,
            shape=3,
            transform=pm.distributions.transforms.ordered,
            initval=np.array([-1.0, 0.0, 1.0]),
        )
        slope = pm.Normal("slope", 0, 1)
        pm.OrderedProbit("y", eta=slope * x, cutpoints=cuts, observed=y)
    return model


def categorical() -> pm.Model:
    """Build a softmax regression for one of several classes."""
    rng = np.random.default_rng(38)
    x = _regressors(rng, 300)
    with pm.Model() as model:
        weights = pm.Normal("weights", 0, 1, shape=(3, 4))
        pm.Categorical("y", p=pm.math.softmax(x @ weights, axis=-1), observed=rng.integers(0, 4, 300))
    return model

"""Hierarchical models, with groups that have a common distribution or with shrinkage priors."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

_EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
_ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools() -> pm.Model:
    """Build the eight schools model, in the non-centered parametrization."""
    with pm.Model() as model:
        center = pm.Normal("center", 0, 5)
        spread = pm.HalfCauchy("spread", 5)
        offset = pm.Normal("offset", 0, 1, shape=8)
        pm.Normal("effect", center + spread * offset, _ERRORS, observed=_EFFECTS)
    return model


def eight_schools_centered() -> pm.Model:
    """Build the eight schools model, in the centered parametrization."""
    with pm.Model() as model:
        center = pm.Normal("center", 0, 5)
        spread = pm.HalfNormal("spread", 5)
        effect = pm.Normal("effect", center, spread, shape=8)
        pm.Normal("y", effect, _ERRORS, observed=_EFFECTS)
    return model


def logistic_groups() -> pm.Model:
    """Build a logistic regression with an intercept for each group."""
    rng = np.random.default_rng(21)
    group, x = rng.integers(0, 20, 600), rng.normal(size=(600, 3))
    y = rng.random(600) < 1 / (1 + np.exp(-(x[:, 0] - 0.5 + 0.3 * rng.normal(size=20)[group])))
    with pm.Model() as model:
        spread = pm.HalfNormal("spread", 1)
        intercept = pm.Normal("intercept", 0, spread, shape=20)
        weights = pm.Normal("weights", 0, 1, shape=3)
        pm.Bernoulli("y", logit_p=intercept[group] + x @ weights, observed=y.astype("int64"))
    return model


def crossed_poisson() -> pm.Model:
    """Build a model of counts that depend on two crossed groupings."""
    rng = np.random.default_rng(22)
    row, column = rng.integers(0, 12, 500), rng.integers(0, 9, 500)
    with pm.Model() as model:
        spread = pm.Exponential("spread", 1, shape=2)
        rows = pm.Normal("rows", 0, 1, shape=12)
        columns = pm.Normal("columns", 0, 1, shape=9)
        rate = pt.exp(0.5 + spread[0] * rows[row] + spread[1] * columns[column])
        pm.Poisson("y", rate, observed=rng.poisson(2.0, 500))
    return model


def varying_slopes() -> pm.Model:
    """Build a regression whose groups have correlated intercepts and slopes, with an LKJ prior."""
    rng = np.random.default_rng(23)
    group, x = rng.integers(0, 15, 400), rng.normal(size=400)
    with pm.Model() as model:
        factor, _, _ = pm.LKJCholeskyCov("factor", n=2, eta=2, sd_dist=pm.Exponential.dist(1))
        offset = pm.Normal("offset", 0, 1, shape=(2, 15))
        effects = (factor @ offset).T
        center = pm.Normal("center", 0, 1, shape=2)
        mean = center[0] + effects[group, 0] + (center[1] + effects[group, 1]) * x
        pm.Normal("y", mean, pm.HalfNormal("noise", 1), observed=x + rng.normal(size=400))
    return model


def horseshoe() -> pm.Model:
    """Build a regression whose weights have a horseshoe prior."""
    rng = np.random.default_rng(24)
    x = rng.normal(size=(200, 30))
    with pm.Model() as model:
        whole = pm.HalfCauchy("whole", 0.1)
        each = pm.HalfCauchy("each", 1, shape=30)
        offset = pm.Normal("offset", 0, 1, shape=30)
        mean = x @ (offset * each * whole)
        pm.Normal("y", mean, pm.HalfNormal("noise", 1), observed=2 * x[:, 0] + rng.normal(size=200))
    return model


def difference_of_means() -> pm.Model:
    """Build a model that compares two groups with heavy-tailed noise, as in BEST."""
    rng = np.random.default_rng(25)
    with pm.Model() as model:
        center = pm.Normal("center", 100, 20, shape=2)
        spread = pm.Uniform("spread", 1, 30, shape=2)
        freedom = 1 + pm.Exponential("freedom", 1 / 29)
        for number, mean in enumerate((101.0, 100.0)):
            y = mean + 3 * rng.standard_t(4, size=45)
            pm.StudentT(f"y{number}", nu=freedom, mu=center[number], sigma=spread[number], observed=y)
        pm.Deterministic("difference", center[0] - center[1])
    return model

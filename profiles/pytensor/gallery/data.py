"""Models with missing or replaced data, and models with user-defined densities."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def _with_gaps(rng: np.random.Generator, size: int, every: int = 7) -> np.ndarray:
    values = rng.normal(size=size)
    values[::every] = np.nan
    return values


def missing_outcomes(rows: int = 300) -> pm.Model:
    """Build a regression with some missing outcomes."""
    rng = np.random.default_rng(81)
    x = rng.normal(size=rows)
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyMC warns that it imputes missing values
        weights = pm.Normal("weights", 0, 1, shape=2)
        pm.Normal("y", weights[0] + weights[1] * x, pm.HalfNormal("noise", 1), observed=_with_gaps(rng, rows))
    return model


def missing_covariates(rows: int = 400) -> pm.Model:
    """Build a regression with some missing regressors."""
    rng = np.random.default_rng(82)
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyMC warns that it imputes missing values
        x = pm.Normal("x", pm.Normal("center"), pm.HalfNormal("spread", 1), observed=_with_gaps(rng, rows))
        pm.Normal("y", pm.Normal("slope") * x, 1, observed=rng.normal(size=rows))
    return model


def replaced_data() -> tuple[pm.Model, Callable[[], None]]:
    """Build a regression; return the model, and a function that replaces its data by data of another length."""
    rng = np.random.default_rng(83)

    def values(rows: int) -> dict[str, np.ndarray]:
        return {"x": rng.normal(size=(rows, 4)), "observed": rng.normal(size=rows)}

    before = values(150)
    with pm.Model() as model:
        x, observed = pm.Data("x", before["x"]), pm.Data("observed", before["observed"])
        weights = pm.Normal("weights", 0, 1, shape=4)
        pm.Normal("y", x @ weights, pm.HalfNormal("noise", 1), observed=observed, shape=x.shape[0])

    def change() -> None:
        with model:
            pm.set_data(values(260))

    return model, change


def custom_density() -> pm.Model:
    """Build a model with a custom distribution that is defined by its log density."""
    rng = np.random.default_rng(84)

    def logp(value: Any, center: Any, scale: Any) -> Any:
        return -pt.abs(value - center) / scale - pt.log(2 * scale)

    with pm.Model() as model:
        center, scale = pm.Normal("center", 0, 1), pm.HalfNormal("scale", 1)
        pm.CustomDist("y", center, scale, logp=logp, observed=rng.laplace(size=200))
    return model


def custom_distribution() -> pm.Model:
    """Build a model with a custom distribution that is a function of another random variable."""
    rng = np.random.default_rng(85)

    def dist(center: Any, spread: Any, size: Any) -> Any:
        return pm.math.exp(pm.Normal.dist(center, spread, size=size))

    with pm.Model() as model:
        center, spread = pm.Normal("center", 0, 1), pm.HalfNormal("spread", 1)
        pm.CustomDist("y", center, spread, dist=dist, observed=rng.lognormal(size=200))
    return model


def potentials() -> pm.Model:
    """Build constraints as potentials."""
    rng = np.random.default_rng(86)
    with pm.Model() as model:
        weights = pm.Normal("weights", 0, 1, shape=6)
        pm.Potential("sum to zero", -100 * weights.sum() ** 2)
        pm.Potential("smooth", -((weights[1:] - weights[:-1]) ** 2).sum())
        pm.Normal("y", weights, 1, observed=rng.normal(size=(30, 6)))
    return model


def interpolated_prior() -> pm.Model:
    """Build a model whose prior is interpolated from a table."""
    rng = np.random.default_rng(87)
    x = np.linspace(-3, 3, 50)
    with pm.Model() as model:
        center = pm.Interpolated("center", x, np.exp(-(x**2)))
        pm.Normal("y", center, 1, observed=rng.normal(size=100))
    return model


def angles() -> pm.Model:
    """Build a model of directions with a von Mises distribution."""
    rng = np.random.default_rng(88)
    with pm.Model() as model:
        center, kappa = pm.VonMises("center", 0, 1), pm.HalfNormal("kappa", 5)
        pm.VonMises("y", center, kappa, observed=rng.vonmises(0.5, 2.0, 150))
    return model


def stick_breaking() -> pm.Model:
    """Build a model of weights that are drawn by breaking a stick."""
    rng = np.random.default_rng(89)
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=pm.Gamma("alpha", 2, 1), K=6)
        pm.Multinomial("y", n=100, p=weights, observed=rng.multinomial(100, np.full(7, 1 / 7)))
    return model

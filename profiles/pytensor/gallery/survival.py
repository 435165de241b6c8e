"""Times to events: censored, truncated, and as terms of a potential."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def weibull_censored() -> pm.Model:
    """Build censored Weibull times."""
    rng = np.random.default_rng(51)
    x, y = rng.normal(size=200), 3 * rng.weibull(1.5, 200)
    with pm.Model() as model:
        slope, shape = pm.Normal("slope", 0, 1), pm.HalfNormal("shape", 2)
        times = pm.Weibull.dist(alpha=shape, beta=pt.exp(1 + slope * x))
        pm.Censored("y", times, lower=None, upper=4.0, observed=np.minimum(y, 4.0))
    return model


def exponential_potential() -> pm.Model:
    """Build exponential times; the censored times are terms of a potential."""
    rng = np.random.default_rng(52)
    x, time, ended = rng.normal(size=300), rng.exponential(2.0, 300), rng.random(300) < 0.7
    with pm.Model() as model:
        weights = pm.Normal("weights", 0, 1, shape=2)
        log_rate = weights[0] + weights[1] * x
        pm.Potential("survival", (ended * log_rate - pt.exp(log_rate) * time).sum())
    return model


def piecewise_hazard() -> pm.Model:
    """Build a hazard that is constant in each interval, with a Poisson likelihood of counts."""
    rng = np.random.default_rng(53)
    people, intervals = 60, 8
    end = rng.integers(1, intervals, people)
    exposed = (np.arange(intervals) <= end[:, None]).astype("float64")
    died = (np.arange(intervals) == end[:, None]) & (rng.random((people, 1)) < 0.7)
    x = rng.normal(size=people)
    with pm.Model() as model:
        hazard = pm.Gamma("hazard", 1, 1, shape=intervals)
        slope = pm.Normal("slope", 0, 1)
        rate = pt.exp(slope * x)[:, None] * hazard * exposed + 1e-10
        pm.Poisson("died", rate, observed=died.astype("int64"))
    return model


def lognormal_potential() -> pm.Model:
    """Build log-normal times, with the survival function as the term of censored times."""
    rng = np.random.default_rng(54)
    time, ended = rng.lognormal(1, 0.8, 250), rng.random(250) < 0.6
    with pm.Model() as model:
        center, spread = pm.Normal("center", 0, 2), pm.HalfNormal("spread", 1)
        pm.LogNormal("observed", center, spread, observed=time[ended])
        pm.Potential("censored", pt.log(0.5 * pt.erfc((np.log(time[~ended]) - center) / (spread * np.sqrt(2)))).sum())
    return model


def truncated_normal() -> pm.Model:
    """Build measurements of which only the large values are observed."""
    rng = np.random.default_rng(55)
    y = rng.normal(1, 1, 400)
    with pm.Model() as model:
        center, spread = pm.Normal("center", 0, 2), pm.HalfNormal("spread", 2)
        pm.TruncatedNormal("y", center, spread, lower=0.0, observed=y[y > 0])
    return model

"""Models of series: a Gaussian process, stochastic volatility, an autoregression, and a GARCH model."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.pytensorf import floatX


def gaussian_process(observations: int, seed: int = 7) -> pm.Model:
    """Build a marginalized noisy Gaussian process; the Cholesky factor has a row for each observation."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 10, observations)
    y = np.sin(x) + 0.3 * rng.normal(size=observations)
    with pm.Model() as model:
        length = pm.Gamma("length", 3, 2)
        height = pm.HalfNormal("height", 2)
        noise = pm.HalfNormal("noise", 1)
        process = pm.gp.Marginal(cov_func=height**2 * pm.gp.cov.ExpQuad(1, ls=length))
        process.marginal_likelihood("y", X=floatX(x[:, None]), y=floatX(y), sigma=noise)
    return model


def stochastic_volatility(days: int, seed: int = 8) -> pm.Model:
    """Build returns with heavy tails, whose logarithmic volatility is a random walk."""
    rng = np.random.default_rng(seed)
    walk = np.clip(np.cumsum(0.1 * rng.normal(size=days)), -3, 3)
    returns = 0.01 * np.exp(walk) * rng.standard_t(8, size=days)
    with pm.Model() as model:
        step = pm.Exponential("step", 10)
        start = {"init_dist": pm.Normal.dist(0, 3), "initval": floatX(np.full(days, -3.0))}
        volatility = pm.GaussianRandomWalk("volatility", mu=0, sigma=step, shape=days, **start)
        freedom = pm.Exponential("freedom", 0.1)
        pm.StudentT("returns", nu=freedom, lam=pm.math.exp(-2 * volatility), observed=returns)
    return model


def autoregression(steps: int, seed: int = 9) -> pm.Model:
    """Build an autoregressive series of order two."""
    rng = np.random.default_rng(seed)
    y = np.zeros(steps)
    noise = rng.normal(size=steps)
    for t in range(2, steps):
        y[t] = 0.6 * y[t - 1] - 0.2 * y[t - 2] + noise[t]
    with pm.Model() as model:
        weights = pm.Normal("weights", 0, 0.5, shape=3)
        spread = pm.HalfNormal("spread", 1)
        start = pm.Normal.dist(0, 5, shape=2)
        pm.AR("y", weights, sigma=spread, constant=True, init_dist=start, observed=y)
    return model


def garch(days: int, seed: int = 13) -> pm.Model:
    """Build returns whose variance depends on the day before; a loop has one step for each day."""
    rng = np.random.default_rng(seed)
    level, shock, memory = 0.1, 0.15, 0.75
    returns, variance = np.zeros(days), np.full(days, level / (1 - shock - memory))
    for t in range(days):
        if t:
            variance[t] = level + shock * returns[t - 1] ** 2 + memory * variance[t - 1]
        returns[t] = np.sqrt(variance[t]) * rng.normal()
    with pm.Model() as model:
        level = pm.HalfNormal("level", 0.5)
        shock = pm.Beta("shock", 2, 8)
        memory = pm.Beta("memory", 8, 3)
        start = pm.HalfNormal("start", 2)
        later = pytensor.scan(
            lambda before, last, *parameters: parameters[0] + parameters[1] * before + parameters[2] * last,
            sequences=pt.as_tensor(floatX(returns[:-1] ** 2)),
            outputs_info=start,
            non_sequences=[level, shock, memory],
            return_updates=False,
        )
        variance = pt.concatenate([start[None], later])
        pm.Normal("returns", 0, pt.sqrt(variance), observed=floatX(returns))
    return model

"""PyMC3 models of Gaussian processes and time series: the log density with its gradient."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import theano.tensor as tt

from models.zoo.pymc3_base import log_density


@log_density("pymc3_gp_marginal")
def gp_marginal(pm: ModuleType, rng: np.random.RandomState, rows: int = 15) -> Any:
    """A marginal Gaussian process with noise, and sums and products of kernels."""
    x = np.linspace(0, 3, rows)[:, None]
    with pm.Model() as model:
        length, period = pm.Gamma("length", 2, 1), pm.Gamma("period", 4, 3)
        eta = pm.HalfCauchy("eta", 5)
        kernel = eta**2 * pm.gp.cov.Matern52(1, length) + pm.gp.cov.Periodic(1, period=period, ls=length)
        process = pm.gp.Marginal(mean_func=pm.gp.mean.Linear(coeffs=0.5), cov_func=kernel)
        process.marginal_likelihood("obs", X=x, y=np.sin(x.ravel()), noise=pm.HalfCauchy("noise", 5))
    return model


@log_density("pymc3_gp_latent")
def gp_latent(pm: ModuleType, rng: np.random.RandomState, rows: int = 12) -> Any:
    """A latent Gaussian process of two inputs with a logistic link."""
    x = rng.uniform(size=(rows, 2))
    with pm.Model() as model:
        length = pm.InverseGamma("length", 3, 2, shape=2)
        process = pm.gp.Latent(cov_func=pm.HalfNormal("eta", 1) ** 2 * pm.gp.cov.ExpQuad(2, ls=length))
        f = process.prior("f", X=x)
        pm.Bernoulli("obs", p=pm.math.sigmoid(f), observed=rng.randint(2, size=rows))
    return model


@log_density("pymc3_gp_sparse")
def gp_sparse(pm: ModuleType, rng: np.random.RandomState, rows: int = 20, points: int = 5) -> Any:
    """A sparse Gaussian process whose inducing points are learned."""
    x = np.sort(rng.uniform(0, 3, (rows, 1)), axis=0)
    with pm.Model() as model:
        length, eta = pm.Gamma("length", 2, 1), pm.HalfCauchy("eta", 5)
        process = pm.gp.MarginalSparse(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, length), approx="FITC")
        inducing = pm.Flat("inducing", shape=(points, 1), testval=np.linspace(0, 3, points)[:, None])
        process.marginal_likelihood("obs", X=x, Xu=inducing, y=np.sin(x.ravel()), noise=pm.HalfCauchy("noise", 5))
    return model


@log_density("pymc3_volatility")
def volatility(pm: ModuleType, rng: np.random.RandomState, rows: int = 40) -> Any:
    """Stochastic volatility: a Gaussian random walk, and observations with heavy tails."""
    with pm.Model() as model:
        step = pm.Exponential("step", 10)
        walk = pm.GaussianRandomWalk("walk", sigma=step, shape=rows)
        nu = pm.Exponential("nu", 0.1)
        pm.StudentT("obs", nu, lam=tt.exp(-2 * walk), observed=0.1 * rng.standard_normal(rows))
    return model


@log_density("pymc3_series")
def series(pm: ModuleType, rng: np.random.RandomState, rows: int = 30) -> Any:
    """An autoregressive process, a GARCH(1, 1) whose Scan computes the variance, and skewed and angular noise."""
    with pm.Model() as model:
        rho = pm.Uniform("rho", -1, 1, shape=2)
        pm.AR("ar", rho, sigma=pm.HalfNormal("sigma", 1), observed=rng.standard_normal(rows))
        omega, alpha = pm.HalfNormal("omega", 1), pm.Uniform("alpha", 0, 1)
        pm.GARCH11(
            "garch", omega, alpha, 0.5 * (1 - alpha), initial_vol=np.float64(1), observed=rng.standard_normal(rows)
        )
        pm.SkewNormal("skewed", mu=rho[0], sigma=1, alpha=omega, observed=rng.standard_normal(rows))
        pm.VonMises("angle", mu=rho[1], kappa=2 + alpha, observed=rng.uniform(-3, 3, rows))
    return model


@log_density("pymc3_switchpoint")
def switchpoint(pm: ModuleType, rng: np.random.RandomState, years: int = 40) -> Any:
    """Mining disasters: a rate that changes in a random year, which is constant for the gradient."""
    with pm.Model() as model:
        year = pm.DiscreteUniform("year", 0, years)
        early, late = pm.Exponential("early", 1), pm.Exponential("late", 1)
        rate = pm.math.switch(year >= np.arange(years), early, late)
        pm.Poisson("obs", rate, observed=rng.poisson(2, years))
    return model

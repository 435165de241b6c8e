"""PyMC3 regressions and hierarchical models: the log density with its gradient."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import theano.tensor as tt

from models.zoo.pymc3_base import log_density


@log_density("pymc3_eight_schools")
def eight_schools(pm: ModuleType, rng: np.random.RandomState) -> Any:
    """Eight schools, in non-centred form."""
    effects = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        offset = pm.Normal("offset", 0, 1, shape=len(effects))
        theta = pm.Deterministic("theta", mu + tau * offset)
        pm.Normal("obs", theta, errors, observed=effects)
    return model


@log_density("pymc3_radon")
def radon(pm: ModuleType, rng: np.random.RandomState, counties: int = 10, houses: int = 60) -> Any:
    """Intercepts and slopes that vary by county."""
    county, floor = rng.randint(counties, size=houses), rng.randint(2, size=houses)
    with pm.Model() as model:
        mu_a, mu_b = pm.Normal("mu_a", 0, 100), pm.Normal("mu_b", 0, 100)
        sigma_a, sigma_b = pm.HalfCauchy("sigma_a", 5), pm.HalfCauchy("sigma_b", 5)
        a = pm.Normal("a", mu_a, sigma_a, shape=counties)
        b = pm.Normal("b", mu_b, sigma_b, shape=counties)
        eps = pm.HalfCauchy("eps", 5)
        pm.StudentT("obs", nu=4, mu=a[county] + b[county] * floor, sigma=eps, observed=rng.standard_normal(houses))
    return model


@log_density("pymc3_horseshoe")
def horseshoe(pm: ModuleType, rng: np.random.RandomState, rows: int = 40, columns: int = 12) -> Any:
    """A logistic regression with a regularized horseshoe prior."""
    x = rng.standard_normal((rows, columns))
    with pm.Model() as model:
        tau = pm.HalfStudentT("tau", 2, 0.1)
        scales = pm.HalfStudentT("scales", 5, shape=columns)
        slab = pm.InverseGamma("slab", alpha=1, beta=1)
        regularized = scales * tt.sqrt(slab / (slab + tau**2 * scales**2))
        z = pm.Normal("z", 0, 1, shape=columns)
        logits = tt.dot(x, z * tau * regularized) + pm.Normal("intercept", 0, 2)
        pm.Bernoulli("obs", logit_p=logits, observed=rng.randint(2, size=rows))
    return model


@log_density("pymc3_counts")
def counts(pm: ModuleType, rng: np.random.RandomState, rows: int = 50) -> Any:
    """Zero-inflated and overdispersed counts with bounded parameters."""
    x = rng.standard_normal((rows, 3))
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 1, shape=3)
        mu = tt.exp(tt.dot(x, slopes))
        psi = pm.Beta("psi", 2, 2)
        alpha = pm.Bound(pm.Normal, lower=0.1)("alpha", mu=2, sigma=1)
        pm.ZeroInflatedPoisson("visits", psi, mu, observed=rng.poisson(2, rows))
        pm.NegativeBinomial("days", mu, alpha, observed=rng.poisson(4, rows))
        pm.ZeroInflatedBinomial("hits", psi, 9, tt.nnet.sigmoid(slopes[0]), observed=rng.randint(9, size=rows))
    return model


@log_density("pymc3_ordered")
def ordered(pm: ModuleType, rng: np.random.RandomState, rows: int = 40, levels: int = 5) -> Any:
    """An ordered logistic regression whose cut points have an ordered transform."""
    x = rng.standard_normal(rows)
    with pm.Model() as model:
        cuts = pm.Normal(
            "cuts",
            0,
            2,
            shape=levels - 1,
            transform=pm.distributions.transforms.ordered,
            testval=np.linspace(-1, 1, levels - 1),
        )
        slope = pm.Laplace("slope", 0, 1)
        pm.OrderedLogistic("obs", eta=slope * x, cutpoints=cuts, observed=rng.randint(levels, size=rows))
    return model


@log_density("pymc3_survival")
def survival(pm: ModuleType, rng: np.random.RandomState, rows: int = 40) -> Any:
    """Weibull survival times; a Potential models the censored ones."""
    times, censored = rng.weibull(1.5, rows) + 0.1, rng.uniform(size=rows) > 0.7
    group = rng.randint(3, size=rows)
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2, 1)
        baseline = pm.Normal("baseline", 0, 2, shape=3)
        beta = tt.exp(baseline[group])
        pm.Weibull("seen", alpha, beta[~censored], observed=times[~censored])
        pm.Potential("censored", -tt.sum((times[censored] / beta[censored]) ** alpha))
        pm.Gumbel("gumbel", baseline, 1, observed=rng.standard_normal((5, 3)))
    return model


@log_density("pymc3_correlated")
def correlated(pm: ModuleType, rng: np.random.RandomState, rows: int = 30, width: int = 3) -> Any:
    """Correlated normals with an LKJ prior over the Cholesky factor."""
    with pm.Model() as model:
        packed = pm.LKJCholeskyCov("packed", n=width, eta=2, sd_dist=pm.HalfCauchy.dist(2.5))
        chol = pm.expand_packed_triangular(width, packed)
        mu = pm.Normal("mu", 0, 10, shape=width)
        pm.MvNormal("obs", mu, chol=chol, observed=rng.standard_normal((rows, width)))
    return model


@log_density("pymc3_factorization")
def factorization(pm: ModuleType, rng: np.random.RandomState, rows: int = 8, columns: int = 6, rank: int = 2) -> Any:
    """A factorization of a matrix of ratings, many of which are missing."""
    ratings = rng.uniform(-1, 1, (rows, columns))
    seen = np.nonzero(rng.uniform(size=ratings.shape) > 0.3)
    with pm.Model() as model:
        precision = pm.Wald("precision", 1, 1, shape=rank)
        users = pm.MvNormal("users", np.zeros(rank), tau=tt.diag(precision), shape=(rows, rank))
        items = pm.Normal("items", 0, 1, shape=(columns, rank))
        pm.Normal("obs", tt.dot(users, items.T)[seen], 0.5, observed=ratings[seen])
    return model

"""PyMC3 mixtures, some with Dirichlet priors: the log density with its gradient."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import theano.tensor as tt

from models.zoo.pymc3_base import log_density


@log_density("pymc3_dirichlet")
def dirichlet(pm: ModuleType, rng: np.random.RandomState, width: int = 4) -> Any:
    """A Dirichlet distribution with parameters of one."""
    with pm.Model() as model:
        pm.Dirichlet("w", np.ones(width))
    return model


@log_density("pymc3_normal_mixture")
def normal_mixture(pm: ModuleType, rng: np.random.RandomState, rows: int = 40, parts: int = 3) -> Any:
    """A mixture of normals with Dirichlet weights."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(parts))
        mu = pm.Normal("mu", np.arange(parts), 2, shape=parts)
        tau = pm.Gamma("tau", 1, 1, shape=parts)
        pm.NormalMixture("obs", w, mu, tau=tau, observed=rng.standard_normal(rows))
    return model


@log_density("pymc3_mixture_of_kinds")
def mixture_of_kinds(pm: ModuleType, rng: np.random.RandomState, rows: int = 30) -> Any:
    """A mixture of distributions of different kinds."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.array([1.0, 2.0, 3.0]))
        rate, shape = pm.Exponential("rate", 1), pm.HalfNormal("shape", 2)
        kinds = [pm.Exponential.dist(rate), pm.Gamma.dist(shape, 1), pm.Lognormal.dist(0, shape)]
        pm.Mixture("obs", w, kinds, observed=rng.gamma(2, 1, rows) + 0.05)
    return model


@log_density("pymc3_dirichlet_process")
def dirichlet_process(pm: ModuleType, rng: np.random.RandomState, rows: int = 30, parts: int = 6) -> Any:
    """A truncated stick-breaking Dirichlet process."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1, 1)
        beta = pm.Beta("beta", 1, alpha, shape=parts)
        sticks = beta * tt.concatenate([[1], tt.extra_ops.cumprod(1 - beta)[:-1]])
        w = pm.Deterministic("w", sticks / sticks.sum())  # a mixture whose weights do not sum to one is impossible
        tau = pm.Gamma("tau", 1, 1, shape=parts)
        mu = pm.Normal("mu", 0, tau=tau, shape=parts)
        pm.NormalMixture("obs", w, mu, tau=tau, observed=rng.standard_normal(rows))
    return model


@log_density("pymc3_topics")
def topics(pm: ModuleType, rng: np.random.RandomState, documents: int = 5, vocabulary: int = 8, parts: int = 3) -> Any:
    """A topic model of documents; the topic of each word is marginalized."""
    words = rng.randint(vocabulary, size=(documents, 12))
    with pm.Model() as model:
        theta = pm.Dirichlet("theta", np.full((documents, parts), 0.7), shape=(documents, parts))
        phi = pm.Dirichlet("phi", np.full((parts, vocabulary), 0.7), shape=(parts, vocabulary))
        rows = np.repeat(np.arange(documents), 12)
        log_p = tt.log(theta[rows]) + tt.log(phi[:, words.ravel()].T)
        pm.Potential("words", pm.math.logsumexp(log_p, axis=1).sum())
    return model


@log_density("pymc3_multinomial")
def multinomial(pm: ModuleType, rng: np.random.RandomState, rows: int = 6, width: int = 4) -> Any:
    """Overdispersed multinomial counts."""
    observed = rng.multinomial(10, np.full(width, 1 / width), size=rows)
    with pm.Model() as model:
        share = pm.Dirichlet("share", np.ones(width))
        concentration = pm.Lognormal("concentration", 1, 1)
        p = pm.Dirichlet("p", share * concentration, shape=(rows, width))
        pm.Multinomial("obs", n=10, p=p, observed=observed)
    return model

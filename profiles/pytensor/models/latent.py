"""Models with latent variables: mixtures, a matrix factorization, a Bayesian neural net, and an LKJ prior."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.pytensorf import floatX


def matrix_factorization(ratings: int, rank: int = 5, seed: int = 10) -> pm.Model:
    """Build a factorization of a table of ratings; about fifty ratings are known for each user."""
    rng = np.random.default_rng(seed)
    users, items = max(ratings // 50, 3), max(ratings // 100, 2)
    user, item = rng.integers(0, users, ratings), rng.integers(0, items, ratings)
    taste, trait = rng.normal(size=(users, rank)), rng.normal(size=(items, rank))
    rating = (taste[user] * trait[item]).sum(axis=1) + 0.5 * rng.normal(size=ratings)
    with pm.Model() as model:
        taste = pm.Normal("taste", 0, 1, shape=(users, rank), initval=floatX(0.1 * taste))
        trait = pm.Normal("trait", 0, 1, shape=(items, rank), initval=floatX(0.1 * trait))
        noise = pm.HalfNormal("noise", 1)
        pm.Normal("rating", (taste[user] * trait[item]).sum(axis=-1), noise, observed=rating)
    return model


def bayesian_net(observations: int, features: int = 8, width: int = 16, seed: int = 11) -> pm.Model:
    """Build a neural net that distinguishes two classes; it has two hidden layers, and normal priors of the weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(observations, features))
    y = (np.sin(x[:, 0]) + x[:, 1] * x[:, 2] > 0).astype("int64")
    first, second, last = (
        rng.normal(size=shape) / np.sqrt(shape[0]) for shape in ((features, width), (width, width), (width,))
    )
    with pm.Model() as model:
        first = pm.Normal("first", 0, 1, shape=(features, width), initval=floatX(first))
        second = pm.Normal("second", 0, 1, shape=(width, width), initval=floatX(second))
        last = pm.Normal("last", 0, 1, shape=width, initval=floatX(last))
        hidden = pt.tanh(pt.tanh(floatX(x) @ first) @ second)
        pm.Bernoulli("y", logit_p=hidden @ last, observed=y)
    return model


def lkj(observations: int, dimensions: int = 4, seed: int = 12) -> pm.Model:
    """Build normally distributed vectors, with an LKJ prior of their correlations."""
    rng = np.random.default_rng(seed)
    factor = np.tril(rng.normal(size=(dimensions, dimensions))) + 2 * np.eye(dimensions)
    y = rng.normal(size=(observations, dimensions)) @ factor.T
    with pm.Model() as model:
        center = pm.Normal("center", 0, 2, shape=dimensions)
        cholesky, _, _ = pm.LKJCholeskyCov("cholesky", n=dimensions, eta=2, sd_dist=pm.Exponential.dist(1))
        pm.MvNormal("y", center, chol=cholesky, observed=y)
    return model


def gaussian(observations: int, components: int = 3, seed: int = 5) -> pm.Model:
    """Build a mixture of normal distributions in which the choice of the component is marginalized."""
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
    """Build a Dirichlet process mixture by stick-breaking, with at most `components` components."""
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

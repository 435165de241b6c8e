"""Models with several matrices: a matrix factorization, a Bayesian neural net, correlations with an LKJ prior."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.pytensorf import floatX


def matrix_factorization(ratings: int, rank: int = 5, seed: int = 10) -> pm.Model:
    """Build a factorization of a table of which some ratings are known, about fifty of each user.

    Parameters
    ----------
    ratings
        Number of known entries.
    rank
        Length of the vectors of users and items.
    seed
        Of the data.
    """
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
    """Build a neural net of two hidden layers whose weights are normal, for two classes."""
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
    """Build vectors of a normal distribution, with an LKJ prior of their correlations."""
    rng = np.random.default_rng(seed)
    factor = np.tril(rng.normal(size=(dimensions, dimensions))) + 2 * np.eye(dimensions)
    y = rng.normal(size=(observations, dimensions)) @ factor.T
    with pm.Model() as model:
        center = pm.Normal("center", 0, 2, shape=dimensions)
        cholesky, _, _ = pm.LKJCholeskyCov("cholesky", n=dimensions, eta=2, sd_dist=pm.Exponential.dist(1))
        pm.MvNormal("y", center, chol=cholesky, observed=y)
    return model

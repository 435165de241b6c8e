"""Hierarchical, logistic, ordinal and multinomial regressions."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.pytensorf import floatX


def radon(counties: int, houses: int = 11, seed: int = 1) -> pm.Model:
    """Build a hierarchical regression: each county's intercept and slope are drawn from a common distribution."""
    rng = np.random.default_rng(seed)
    county = rng.permutation(np.repeat(np.arange(counties), houses))
    floor = rng.integers(0, 2, county.size).astype("float64")
    uranium = rng.normal(size=counties)
    intercepts = 1.4 + 0.7 * uranium + 0.3 * rng.normal(size=counties)
    level = intercepts[county] - 0.7 * floor + 0.7 * rng.normal(size=county.size)
    with pm.Model() as model:
        weights = pm.Normal("weights", 0, 2, shape=2)
        spread = pm.HalfNormal("spread", 1, shape=2)
        offset = pm.Normal("offset", 0, 1, shape=(2, counties))
        noise = pm.Exponential("noise", 1)
        slope = pm.Normal("slope", 0, 2)
        intercept = weights[0] + weights[1] * floatX(uranium) + spread[0] * offset[0]
        slopes = slope + spread[1] * offset[1]
        pm.Normal("level", intercept[county] + slopes[county] * floatX(floor), noise, observed=level)
    return model


def logistic(observations: int, features: int = 100, seed: int = 2) -> pm.Model:
    """Build a logistic regression."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(observations, features))
    logits = x @ (rng.normal(size=features) / np.sqrt(features)) - 0.3
    y = rng.random(observations) < 1 / (1 + np.exp(-logits))
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 2)
        weights = pm.Normal("weights", 0, 1, shape=features)
        pm.Bernoulli("y", logit_p=intercept + floatX(x) @ weights, observed=y.astype("int64"))
    return model


def ordinal(observations: int, features: int = 3, grades: int = 5, seed: int = 3) -> pm.Model:
    """Build an ordered logistic regression."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(observations, features))
    latent = x @ rng.normal(size=features) + rng.logistic(size=observations)
    grade = np.digitize(latent, np.linspace(-2, 2, grades - 1))
    with pm.Model() as model:
        weights = pm.Normal("weights", 0, 1, shape=features)
        cuts = pm.Normal(
            "cuts",
            0,
            2,
            shape=grades - 1,
            transform=pm.distributions.transforms.ordered,
            initval=floatX(np.linspace(-1, 1, grades - 1)),
        )
        pm.OrderedLogistic("grade", eta=floatX(x) @ weights, cutpoints=cuts, observed=grade)
    return model


def multinomial(observations: int, features: int = 4, classes: int = 5, trials: int = 20, seed: int = 4) -> pm.Model:
    """Build a regression of counts; each row is multinomial, with probabilities that a softmax computes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(observations, features))
    logits = x @ rng.normal(size=(features, classes))
    share = np.exp(logits - logits.max(axis=1, keepdims=True))
    counts = rng.multinomial(trials, share / share.sum(axis=1, keepdims=True))
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 1, shape=classes)
        weights = pm.Normal("weights", 0, 1, shape=(features, classes))
        probabilities = pt.special.softmax(intercept + floatX(x) @ weights, axis=-1)
        pm.Multinomial("counts", n=trials, p=probabilities, observed=counts)
    return model

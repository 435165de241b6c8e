"""Steps of variational inference in PyMC3: ADVI, full-rank ADVI, minibatches, Stein's method, normalizing flows."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import theano.tensor as tt

from models.zoo.pymc3_base import inference_step


def _regression(pm: ModuleType, rng: np.random.RandomState, rows: int = 30) -> Any:
    """Return a linear regression with an unknown scale."""
    x = rng.standard_normal((rows, 3))
    with pm.Model() as model:
        slopes = pm.Normal("slopes", 0, 1, shape=3)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("obs", tt.dot(x, slopes), sigma, observed=rng.standard_normal(rows))
    return model


@inference_step("pymc3_advi")
def advi(pm: ModuleType, rng: np.random.RandomState) -> Any:
    """A step of ADVI with its loss."""
    return pm.ADVI(model=_regression(pm, rng), random_seed=3), {"score": True}


@inference_step("pymc3_full_rank_advi")
def full_rank_advi(pm: ModuleType, rng: np.random.RandomState) -> Any:
    """A step of full-rank ADVI, with several draws, by Adam."""
    inference = pm.FullRankADVI(model=_regression(pm, rng), random_seed=3)
    return inference, {"score": True, "obj_n_mc": 3, "obj_optimizer": pm.adam(learning_rate=0.01)}


@inference_step("pymc3_svgd")
def svgd(pm: ModuleType, rng: np.random.RandomState) -> Any:
    """A step of Stein's variational gradient descent."""
    return pm.SVGD(n_particles=5, model=_regression(pm, rng), random_seed=3), {}


@inference_step("pymc3_flow")
def flow(pm: ModuleType, rng: np.random.RandomState) -> Any:
    """A step of inference by normalizing flows."""
    return pm.NFVI("scale-planar*2-loc", model=_regression(pm, rng), random_seed=3), {"score": True}


@inference_step("pymc3_bayesian_net")
def bayesian_net(pm: ModuleType, rng: np.random.RandomState, rows: int = 60, width: int = 4) -> Any:
    """A step of ADVI for a neural net with priors over its weights, on minibatches."""
    x, y = rng.standard_normal((rows, 3)), rng.randint(2, size=rows)
    with pm.Model() as model:
        inputs, labels = pm.Minibatch(x, batch_size=10), pm.Minibatch(y, batch_size=10)
        first = pm.Normal("first", 0, 1, shape=(3, width), testval=rng.standard_normal((3, width)))
        second = pm.Normal("second", 0, 1, shape=(width, width), testval=rng.standard_normal((width, width)))
        last = pm.Normal("last", 0, 1, shape=width, testval=rng.standard_normal(width))
        hidden = tt.tanh(tt.dot(tt.tanh(tt.dot(inputs, first)), second))
        pm.Bernoulli("obs", tt.nnet.sigmoid(tt.dot(hidden, last)), observed=labels, total_size=rows)
    return pm.ADVI(model=model, random_seed=3), {"score": True}

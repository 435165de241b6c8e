"""Common code of the PyMC3 models: imports PyMC3, and records the functions that PyMC3 compiles."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from models.registry import Entry, register
from models.zoo.captured import captured
from profiles.models import Model

#: A function that returns a PyMC3 model; it takes PyMC3, a random number generator, and sizes.
Maker = Callable[..., Any]

FLAGS = {"compute_test_value": "raise"}
"""What PyMC3 sets within a model's context, where its samplers compile their functions."""

SEED = 17

AWAY = 0.1
"""Standard deviation of what is added to the test point, so that no gradient is zero by symmetry."""


def log_density(name: str) -> Callable[[Maker], Maker]:
    """Register the decorated builder of a PyMC3 model; its log density and gradient, as in NUTS, are compiled."""

    def enter(maker: Maker) -> Maker:
        def build(name: str, **sizes: object) -> Model:
            pm, rng = import_pymc3(), np.random.RandomState(SEED)
            model = maker(pm, rng, **sizes)
            free = [variable for variable in model.vars if variable.dtype in pm.model.continuous_types]
            size = sum(int(np.prod(variable.tag.test_value.shape)) for variable in free)
            ordering = pm.blocking.ArrayOrdering(free)
            point = pm.blocking.DictToArrayBijection(ordering, model.test_point).map(model.test_point)
            data = np.asarray(point + AWAY * rng.standard_normal(size), pm.theanof.floatX(point).dtype)
            with model:
                return captured(name, lambda: model.logp_dlogp_function(free), [data])

        return _enter(name, maker, build)

    return enter


def inference_step(name: str) -> Callable[[Maker], Maker]:
    """Register the decorated function, which returns an inference and the options of the inference's step."""

    def enter(maker: Maker) -> Maker:
        def build(name: str, **sizes: object) -> Model:
            pm, rng = import_pymc3(), np.random.RandomState(SEED)
            inference, options = maker(pm, rng, **sizes)
            with inference.approx.model:
                return captured(name, lambda: inference.objective.step_function(**options), [])

        return _enter(name, maker, build)

    return enter


def _enter(name: str, maker: Maker, build: Callable[..., Model]) -> Maker:
    build.__doc__ = maker.__doc__
    register(Entry(name, "PyMC3", build, "float64", FLAGS))
    return maker


def import_pymc3() -> ModuleType:
    """Import PyMC3; reset the seeds of random numbers, so that each build draws the same numbers."""
    with warnings.catch_warnings():
        # NumPy warns about names that PyMC3 uses and that NumPy will remove.
        warnings.simplefilter("ignore")
        import pymc3

    np.random.seed(SEED)
    pymc3.set_tt_rng(SEED)
    return pymc3

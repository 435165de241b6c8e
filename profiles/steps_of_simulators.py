"""Builds training steps for simulators, and batches of data for these steps."""

from __future__ import annotations

import numpy as np
import theano

from profiles import models

__all__ = ["batches_of", "compiled"]


def compiled(model: models.Model) -> theano.compile.function_module.Function:
    """Return the training step of a model as a function from which a simulator can be made."""
    mode = theano.Mode(linker="py", optimizer="fast_run")
    return theano.function(model.inputs, model.outputs, updates=model.updates, mode=mode, name=model.name)


def batches_of(model: models.Model, count: int, seed: int = 0) -> list[list[np.ndarray]]:
    """Return random batches that have the shapes and dtypes of a model's data."""
    rng = np.random.RandomState(seed)

    def like(value: np.ndarray) -> np.ndarray:
        if value.dtype.kind in "iu":
            return rng.permutation(value.ravel()).reshape(value.shape)
        return rng.standard_normal(value.shape).astype(value.dtype)

    return [[like(value) for value in model.data] for _ in range(count)]

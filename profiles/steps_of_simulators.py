"""Training steps for simulators, and batches of data for the steps."""

from __future__ import annotations

import numpy as np
import theano

from profiles import models

__all__ = ["batches_of", "compiled"]


def compiled(model: models.Model) -> theano.compile.function_module.Function:
    """Return a model's training step, to be computed by a simulator."""
    mode = theano.Mode(linker="py", optimizer="fast_run")
    return theano.function(model.inputs, model.outputs, updates=model.updates, mode=mode, name=model.name)


def batches_of(model: models.Model, count: int, seed: int = 0) -> list[list[np.ndarray]]:
    """Return random batches with the shapes and dtypes of a model's data."""
    rng = np.random.RandomState(seed)

    def like(value: np.ndarray) -> np.ndarray:
        if value.dtype.kind in "iu":
            return rng.permutation(value.ravel()).reshape(value.shape)
        return rng.standard_normal(value.shape).astype(value.dtype)

    return [[like(value) for value in model.data] for _ in range(count)]

"""Common code of the Keras models: imports Keras, and records the training function of a net.

Keras creates its training function by calling ``keras.backend.function``. The symbolic arguments of this call become
the model. The learning phase remains an input, as in Keras, so that every Dropout and BatchNormalization has a branch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import theano

from models.registry import Entry, register
from models.zoo.captured import unique_updates
from profiles.models import Model

#: A compiled Keras net, the arrays for its inputs, and the arrays for its targets.
CompiledNet = tuple[Any, list[np.ndarray], list[np.ndarray]]
#: A function that returns a compiled net with its data.
Maker = Callable[..., CompiledNet]

TRAINING = 1
"""The learning phase."""


def keras_model(name: str) -> Callable[[Maker], Maker]:
    """Register the decorated function, which takes Keras, a random number generator and sizes, and returns a net."""

    def enter(maker: Maker) -> Maker:
        def build(name: str, **sizes: object) -> Model:
            keras = import_keras()
            rng = np.random.RandomState(11)
            # Seed NumPy's global generator, because layers draw the seeds of their noise from it.
            np.random.seed(11)
            with mock.patch.object(keras.initializers, "K", _WithoutGraphs(keras.backend, rng)):
                net, inputs, targets = maker(keras, rng, **sizes)
            return train_function(name, keras, net, inputs, targets)

        build.__doc__ = maker.__doc__
        register(Entry(name, "Keras", build, "float32"))
        return maker

    return enter


def import_keras() -> ModuleType:
    """Import Keras with Theano as the back-end and with Theano's floatX; prevent writes to the home directory."""
    os.environ["KERAS_BACKEND"] = "theano"
    # Keras would write its settings to its home folder; if this is impossible, it continues.
    os.environ["KERAS_HOME"] = os.devnull
    import keras

    keras.backend.set_floatx(theano.config.floatX)
    return keras


class _WithoutGraphs:
    """Replaces the back-end in keras.initializers, in order to draw with NumPy instead of compiling a function."""

    def __init__(self, backend: ModuleType, rng: np.random.RandomState):
        self._backend = backend
        self._rng = rng

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def random_uniform(self, shape: Any, minval: float = 0.0, maxval: float = 1.0, **options: Any) -> np.ndarray:
        return self._rng.uniform(minval, maxval, shape)

    def random_normal(self, shape: Any, mean: float = 0.0, stddev: float = 1.0, **options: Any) -> np.ndarray:
        return self._rng.normal(mean, stddev, shape)

    truncated_normal = random_normal


def train_function(
    name: str, keras: ModuleType, net: Any, inputs: list[np.ndarray], targets: list[np.ndarray]
) -> Model:
    """Return the training function of a compiled net as a model."""
    with mock.patch.object(keras.backend, "function") as function:
        net._make_train_function()
    symbols, outputs = function.call_args.args
    data = [*inputs, *targets]
    for weights in net._feed_sample_weights:
        rank = len(data) - len(inputs) - len(targets)
        data.append(np.ones(targets[rank].shape[: weights.ndim]))
    if len(symbols) > len(data):
        data.append(np.asarray(TRAINING))
    typed = [np.asarray(value, dtype=symbol.dtype) for symbol, value in zip(symbols, data, strict=True)]
    return Model(name, symbols, outputs, unique_updates(function.call_args.kwargs["updates"]), typed)


def pictures(rng: np.random.RandomState, batch: int, size: int, channels: int = 3) -> np.ndarray:
    """Return pictures of random numbers; the last axis has the channels."""
    return rng.standard_normal((batch, size, size, channels))


def one_hot(rng: np.random.RandomState, batch: int, classes: int) -> np.ndarray:
    """Return a one-hot row for each example, with the one at the example's class."""
    return np.eye(classes)[rng.randint(classes, size=batch)]

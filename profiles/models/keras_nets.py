"""Models from the train functions that Keras 2.3 builds with Theano, if Keras 2.3 is installed.

Keras creates its train function by calling ``keras.backend.function``. The call is recorded instead of executed, and
its symbolic arguments become the model. Importing Keras takes seconds, so it is only imported when a model is built.
"""

from __future__ import annotations

import collections
import collections.abc
import importlib.metadata
import os
from collections import OrderedDict
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import theano

from profiles.models import parts
from profiles.models.base import Model, register

CLASSES = 10


def _installed() -> bool:
    """Return whether a Keras that uses Theano is installed."""
    try:
        return importlib.metadata.version("Keras").startswith("2.3.")
    except importlib.metadata.PackageNotFoundError:
        return False


INSTALLED = _installed()


def _keras() -> ModuleType:
    """Import Keras with Theano as the back-end and with Theano's floatX; prevent writes to the home directory."""
    for name in collections.abc.__all__:
        # Keras expects these names in `collections`, as in old versions of Python.
        if not hasattr(collections, name):
            setattr(collections, name, getattr(collections.abc, name))
    os.environ["KERAS_BACKEND"] = "theano"
    # Keras would write its settings to its home folder. This path cannot be written to, and Keras ignores the error.
    os.environ["KERAS_HOME"] = os.devnull
    import keras

    keras.backend.set_floatx(theano.config.floatX)
    return keras


def _initial_weights(rng: np.random.RandomState) -> dict[str, Any]:
    """Replace the back-end's random functions, because they would compile one graph for each weight."""

    def uniform(shape: Any, minval: float = 0.0, maxval: float = 1.0, **options: Any) -> np.ndarray:
        return rng.uniform(minval, maxval, shape)

    def normal(shape: Any, mean: float = 0.0, stddev: float = 1.0, **options: Any) -> np.ndarray:
        return rng.normal(mean, stddev, shape)

    return {"random_uniform": uniform, "random_normal": normal, "truncated_normal": normal}


def _train_function(name: str, keras: ModuleType, net: Any, inputs: list[np.ndarray], optimizer: str) -> Model:
    """Return the symbolic train function of a classifier of `CLASSES`."""
    backend = keras.backend
    net.compile(optimizer=optimizer, loss="categorical_crossentropy")
    with mock.patch.object(backend, "function") as function:
        net._make_train_function()
    symbols, outputs = function.call_args.args
    # Keras lists some updates twice; only the first entry counts.
    updates: OrderedDict = OrderedDict()
    for variable, value in function.call_args.kwargs["updates"]:
        updates.setdefault(variable, value)

    batch = len(inputs[0])
    rng = np.random.RandomState(12)
    targets = parts.floats(np.eye(CLASSES)[parts.labels(rng, batch, CLASSES)])
    data = [*inputs, targets, parts.floats(np.ones(batch))]
    if len(symbols) > len(data):
        # This input is the learning phase, if the net has layers that behave differently in training.
        data.append(np.asarray(1, dtype=symbols[-1].dtype))
    return Model(name, symbols, outputs, updates, data)


def _application(name: str, application: str, size: int, batch: int) -> Model:
    keras = _keras()
    rng = np.random.RandomState(11)
    with mock.patch.multiple(keras.backend, **_initial_weights(rng)):
        make = getattr(keras.applications, application)
        net = make(weights=None, input_shape=(size, size, 3), classes=CLASSES)
        pictures = parts.floats(rng.standard_normal((batch, size, size, 3)))
        return _train_function(name, keras, net, [pictures], "sgd")


@register("keras_resnet50", INSTALLED, size=32)
def resnet50(name: str, size: int, batch: int = 4) -> Model:
    """The train function of Keras's ResNet50."""
    return _application(name, "ResNet50", size, batch)


@register("keras_inceptionv3", INSTALLED, size=75)
def inceptionv3(name: str, size: int, batch: int = 2) -> Model:
    """The train function of Keras's InceptionV3."""
    return _application(name, "InceptionV3", size, batch)


@register("keras_lstm", INSTALLED, layers=2)
def lstm(name: str, layers: int, width: int = 8, steps: int = 5, batch: int = 3) -> Model:
    """The train function of a stack of Keras's LSTM layers with a softmax at the end."""
    keras = _keras()
    rng = np.random.RandomState(11)
    with mock.patch.multiple(keras.backend, **_initial_weights(rng)):
        net = keras.models.Sequential()
        for layer in range(layers):
            shape = {"input_shape": (steps, width)} if layer == 0 else {}
            net.add(keras.layers.LSTM(width, return_sequences=layer < layers - 1, **shape))
        net.add(keras.layers.Dense(CLASSES, activation="softmax"))
        sequences = parts.floats(rng.standard_normal((batch, steps, width)))
        return _train_function(name, keras, net, [sequences], "adam")

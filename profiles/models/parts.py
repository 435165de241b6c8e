"""Common code of the models: parameters, losses and two training rules.

All functions use ``theano.config.floatX``. Random numbers come from a generator that the caller passes, so that each
build of a model has the same values.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import theano
import theano.tensor as tt
from theano.tensor.sharedvar import TensorSharedVariable
from theano.tensor.var import TensorVariable


def floats(value: np.ndarray | float) -> np.ndarray:
    """Return `value` as an array of floatX."""
    return np.asarray(value, dtype=theano.config.floatX)


def weights(
    rng: np.random.RandomState, *shape: int, name: str | None = None, scale: float | None = None
) -> TensorSharedVariable:
    """Return a shared variable of normal numbers; by default, they are scaled by the fan-in as in He et al. (2015)."""
    if scale is None:
        fan_in = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        scale = np.sqrt(2.0 / fan_in)
    return theano.shared(floats(scale * rng.standard_normal(shape)), name=name)


def constant(value: float, *shape: int, name: str | None = None) -> TensorSharedVariable:
    """Return a shared variable filled with `value`."""
    return theano.shared(floats(np.full(shape, value)), name=name)


def like(parameter: TensorSharedVariable) -> TensorSharedVariable:
    """Return a shared variable of zeros with the shape of `parameter`, for the state of a training rule."""
    value = parameter.get_value(borrow=True)
    return theano.shared(np.zeros_like(value), broadcastable=parameter.broadcastable)


def cross_entropy(logits: TensorVariable, labels: TensorVariable) -> TensorVariable:
    """Return the mean cross-entropy of the softmax of `logits`."""
    return tt.nnet.categorical_crossentropy(tt.nnet.softmax(logits), labels).mean()


def l2(parameters: list[TensorSharedVariable], strength: float) -> TensorVariable:
    """Return a penalty on the sum of the squared weights."""
    return strength * sum(tt.sqr(p).sum() for p in parameters)


def momentum(
    cost: TensorVariable, parameters: list[TensorSharedVariable], rate: float = 0.01, decay: float = 0.9
) -> OrderedDict:
    """Return the updates of stochastic gradient descent with momentum."""
    updates: OrderedDict = OrderedDict()
    for parameter, gradient in zip(parameters, tt.grad(cost, parameters)):
        velocity = like(parameter)
        step = decay * velocity - rate * gradient
        updates[velocity] = step
        updates[parameter] = parameter + step
    return updates


def adam(
    cost: TensorVariable,
    parameters: list[TensorSharedVariable],
    rate: float = 1e-3,
    decay: float = 0.9,
    decay_squares: float = 0.999,
) -> OrderedDict:
    """Return the updates of Adam (Kingma and Ba, 2015)."""
    updates: OrderedDict = OrderedDict()
    count = theano.shared(floats(0.0), name="count")
    now = count + 1
    for parameter, gradient in zip(parameters, tt.grad(cost, parameters)):
        mean, square = like(parameter), like(parameter)
        new_mean = decay * mean + (1 - decay) * gradient
        new_square = decay_squares * square + (1 - decay_squares) * tt.sqr(gradient)
        unbiased_mean = new_mean / (1 - decay**now)
        unbiased_square = new_square / (1 - decay_squares**now)
        updates[mean] = new_mean
        updates[square] = new_square
        updates[parameter] = parameter - rate * unbiased_mean / (tt.sqrt(unbiased_square) + 1e-8)
    updates[count] = now
    return updates


def images(rng: np.random.RandomState, batch: int, channels: int, size: int) -> np.ndarray:
    """Return a batch of square pictures with random pixels."""
    return floats(rng.standard_normal((batch, channels, size, size)))


def labels(rng: np.random.RandomState, batch: int, classes: int) -> np.ndarray:
    """Return a random class for each example of the batch."""
    return rng.randint(0, classes, size=batch).astype("int32")

"""Two small textbook nets: a multilayer perceptron and a convolutional net."""

from __future__ import annotations

import numpy as np
import theano.tensor as tt
from theano.tensor.signal.pool import pool_2d

from profiles.models import parts
from profiles.models.base import Model, register


@register("mlp", depth=3, width=32)
def mlp(name: str, depth: int, width: int, batch: int = 8, classes: int = 10) -> Model:
    """Train step with momentum and weight decay: `depth` hidden layers of rectified units."""
    rng = np.random.RandomState(1)
    x, y = tt.matrix("x"), tt.ivector("y")
    matrices = [parts.weights(rng, width, width) for _ in range(depth)] + [parts.weights(rng, width, classes)]
    biases = [parts.constant(0.0, width) for _ in range(depth)] + [parts.constant(0.0, classes)]

    hidden = x
    for matrix, bias in zip(matrices[:-1], biases[:-1]):
        hidden = tt.nnet.relu(hidden.dot(matrix) + bias)
    cost = parts.cross_entropy(hidden.dot(matrices[-1]) + biases[-1], y) + parts.l2(matrices, 1e-4)

    data = [parts.floats(rng.standard_normal((batch, width))), parts.labels(rng, batch, classes)]
    return Model(name, [x, y], [cost], parts.momentum(cost, matrices + biases), data)


@register("convnet", width=4)
def convnet(name: str, width: int, batch: int = 4, size: int = 12, classes: int = 10) -> Model:
    """Train step of two convolutions with max-pooling and one dense layer, similar to LeNet."""
    rng = np.random.RandomState(2)
    x, y = tt.tensor4("x"), tt.ivector("y")
    filters = [parts.weights(rng, width, 1, 3, 3), parts.weights(rng, 2 * width, width, 3, 3)]
    biases = [parts.constant(0.0, width), parts.constant(0.0, 2 * width)]

    hidden = x
    for kernel, bias in zip(filters, biases):
        hidden = tt.nnet.conv2d(hidden, kernel, border_mode="half") + bias.dimshuffle("x", 0, "x", "x")
        hidden = pool_2d(tt.nnet.relu(hidden), ws=(2, 2), ignore_border=True)
    dense = parts.weights(rng, 2 * width * (size // 4) ** 2, classes)
    offset = parts.constant(0.0, classes)
    cost = parts.cross_entropy(hidden.flatten(2).dot(dense) + offset, y)

    data = [parts.images(rng, batch, 1, size), parts.labels(rng, batch, classes)]
    return Model(name, [x, y], [cost], parts.momentum(cost, [*filters, *biases, dense, offset]), data)

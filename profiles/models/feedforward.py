"""Feedforward nets: a multilayer perceptron, a convolutional net, and residual nets that consist of bottleneck blocks.

The residual nets are ResNet-50 and the deep CIFAR net of 9n+2 layers (He et al., 2015). Channels and pictures are
small, since their sizes do not affect the number of nodes. With the default `rate`, the training of the deep nets is
unstable; with a rate of 1e-6, they learn smoothly.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import theano.tensor as tt
from theano.tensor.nnet.bn import batch_normalization_train
from theano.tensor.sharedvar import TensorSharedVariable
from theano.tensor.signal.pool import pool_2d
from theano.tensor.var import TensorVariable

from profiles.models import parts
from profiles.models.base import Model, register


@register("mlp", depth=3, width=32)
def mlp(name: str, depth: int, width: int, batch: int = 8, classes: int = 10) -> Model:
    """A training step, with momentum and weight decay, of a net with `depth` hidden rectified linear layers."""
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
    """A training step of a net with two convolutions, max-pooling and one dense layer, similar to LeNet."""
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


class Network:
    """Applies layers; collects running averages and parameters, with weight decay (`decayed`) or without (`plain`)."""

    def __init__(self, seed: int):
        self.rng = np.random.RandomState(seed)
        self.decayed: list[TensorSharedVariable] = []
        self.plain: list[TensorSharedVariable] = []
        self.averages: OrderedDict = OrderedDict()

    def convolution(self, x: TensorVariable, channels: tuple[int, int], size: int, stride: int = 1) -> TensorVariable:
        """Convolve without a bias, because the following normalization would cancel a bias."""
        kernel = parts.weights(self.rng, channels[1], channels[0], size, size)
        self.decayed.append(kernel)
        return tt.nnet.conv2d(x, kernel, border_mode=size // 2, subsample=(stride, stride))

    def normalization(self, x: TensorVariable, channels: int) -> TensorVariable:
        """Apply batch normalization in training mode, over pictures and pixels."""
        scale, offset = parts.constant(1.0, channels), parts.constant(0.0, channels)
        mean, variance = parts.constant(0.0, channels), parts.constant(1.0, channels)
        y, _, _, new_mean, new_variance = batch_normalization_train(
            x, scale, offset, axes="spatial", running_mean=mean, running_var=variance
        )
        self.plain += [scale, offset]
        self.averages[mean] = new_mean
        self.averages[variance] = new_variance
        return y

    def bottleneck(self, x: TensorVariable, channels: tuple[int, int], stride: int, project: bool) -> TensorVariable:
        """Apply 1x1, 3x3 and 1x1 convolutions with a shortcut around them, a projection if the shape changes."""
        narrow = channels[1] // 4
        y = self.normalization(self.convolution(x, (channels[0], narrow), 1, stride), narrow)
        y = self.normalization(self.convolution(tt.nnet.relu(y), (narrow, narrow), 3), narrow)
        y = self.normalization(self.convolution(tt.nnet.relu(y), (narrow, channels[1]), 1), channels[1])
        if project:
            x = self.normalization(self.convolution(x, channels, 1, stride), channels[1])
        return tt.nnet.relu(x + y)

    def stages(self, x: TensorVariable, channels: int, counts: Sequence[int], widths: Sequence[int]) -> TensorVariable:
        """Apply stages with `counts` blocks; each stage except the first one halves width and height."""
        for stage, (count, width) in enumerate(zip(counts, widths)):
            for block in range(count):
                first = block == 0
                x = self.bottleneck(x, (channels, width), 2 if first and stage else 1, project=first)
                channels = width
        return x

    def train_step(
        self,
        name: str,
        x: TensorVariable,
        features: TensorVariable,
        width: int,
        data: np.ndarray,
        rate: float,
        classes: int = 10,
    ) -> Model:
        """Pool `features`, classify them, and train all parameters with momentum and the learning rate `rate`."""
        y = tt.ivector("y")
        matrix, bias = parts.weights(self.rng, width, classes), parts.constant(0.0, classes)
        logits = features.mean(axis=(2, 3)).dot(matrix) + bias
        cost = parts.cross_entropy(logits, y) + parts.l2([*self.decayed, matrix], 1e-4)
        updates = parts.momentum(cost, [*self.decayed, *self.plain, matrix, bias], rate)
        updates.update(self.averages)
        return Model(name, [x, y], [cost], updates, [data, parts.labels(self.rng, len(data), classes)])


@register("resnet50", width=16)
def resnet50(
    name: str,
    width: int,
    batch: int = 4,
    size: int = 64,
    blocks: tuple[int, ...] = (3, 4, 6, 3),
    rate: float = 0.01,
) -> Model:
    """A training step of ResNet-50, which has a 7x7 convolution and a max-pooling, and then stages of `blocks`."""
    net = Network(seed=3)
    x = tt.tensor4("x")
    stem = tt.nnet.relu(net.normalization(net.convolution(x, (3, width), 7, stride=2), width))
    stem = pool_2d(stem, ws=(3, 3), stride=(2, 2), pad=(1, 1), ignore_border=True)
    widths = [4 * width * 2**stage for stage in range(len(blocks))]
    features = net.stages(stem, width, blocks, widths)
    return net.train_step(name, x, features, widths[-1], parts.images(net.rng, batch, 3, size), rate)


@register("cifar_resnet", n=9)
def cifar_resnet(name: str, n: int, width: int = 4, batch: int = 4, size: int = 16, rate: float = 0.01) -> Model:
    """A training step of the CIFAR net with 9n+2 layers, which has three stages of `n` bottleneck blocks each."""
    net = Network(seed=4)
    x = tt.tensor4("x")
    stem = tt.nnet.relu(net.normalization(net.convolution(x, (3, width), 3), width))
    features = net.stages(stem, width, [n, n, n], [4 * width, 8 * width, 16 * width])
    return net.train_step(name, x, features, 16 * width, parts.images(net.rng, batch, 3, size), rate)

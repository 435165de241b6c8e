"""The stick-breaking residual net, a net with adaptive depth.

The weight of a residual block is the remaining length of a stick, which is one at the start. Each block breaks off a
random share. The share has a Kumaraswamy distribution, whose parameters the block computes from its input. A
Kullback-Leibler term keeps these posteriors near a Beta prior. The architecture is that of MarcCote/sb_resnet.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import theano
import theano.tensor as tt
from scipy.special import betaln
from theano.sandbox.rng_mrg import MRG_RandomStreams
from theano.tensor.sharedvar import TensorSharedVariable
from theano.tensor.var import TensorVariable

from profiles.models import parts
from profiles.models.base import Model, register

EULER = 0.57721566490153286
LAYERS_PER_BLOCK = 3


@dataclass(frozen=True)
class Normalization:
    """The parameters and running averages of a batch normalization."""

    scale: TensorSharedVariable
    offset: TensorSharedVariable
    mean: TensorSharedVariable
    inverse_deviation: TensorSharedVariable

    @classmethod
    def make(cls, channels: int) -> Normalization:
        """Return a batch normalization that is initially the identity."""
        return cls(*(parts.constant(value, channels) for value in (1.0, 0.0, 0.0, 1.0)))

    def __call__(self, x: TensorVariable, averages: OrderedDict) -> TensorVariable:
        """Normalize `x` over pictures and pixels, and store the new running averages in `averages`."""
        mean, inverse = x.mean(axis=(0, 2, 3)), tt.inv(tt.sqrt(x.var(axis=(0, 2, 3)) + 1e-4))
        averages[self.mean] = 0.9 * self.mean + 0.1 * mean
        averages[self.inverse_deviation] = 0.9 * self.inverse_deviation + 0.1 * inverse
        mean, inverse, scale, offset = (
            v.dimshuffle("x", 0, "x", "x") for v in (mean, inverse, self.scale, self.offset)
        )
        return (x - mean) * (scale * inverse) + offset


@dataclass(frozen=True)
class Block:
    """The parameters of a bottleneck block, including those that determine the distribution of the block's share."""

    normalizations: list[Normalization]
    kernels: list[TensorSharedVariable]
    projection: TensorSharedVariable | None
    kumaraswamy: TensorSharedVariable
    stride: int

    @classmethod
    def make(cls, rng: np.random.RandomState, channels: tuple[int, int], pixels: int, stride: int) -> Block:
        """Return a block from ``channels[0]`` to ``channels[1]`` channels, for pictures of `pixels` x `pixels`."""
        before, after = channels
        narrow = after // 4
        shapes = [(narrow, before, 1, 1), (narrow, narrow, 3, 3), (after, narrow, 1, 1)]
        return cls(
            normalizations=[Normalization.make(shape[1]) for shape in shapes],
            kernels=[parts.weights(rng, *shape) for shape in shapes],
            projection=None if before == after else parts.weights(rng, after, before, 1, 1),
            kumaraswamy=parts.weights(rng, before * pixels**2, 2, scale=0.01),
            stride=stride,
        )

    def posterior(self, x: TensorVariable) -> list[TensorVariable]:
        """Return the two Kumaraswamy parameters as columns, clipped to the range from 1e-6 to 30."""
        both = tt.nnet.softplus(x.flatten(2).dot(self.kumaraswamy))
        return [tt.minimum(30, tt.maximum(1e-6, both[:, k : k + 1])) for k in range(2)]

    def __call__(
        self, x: TensorVariable, stick: TensorVariable, random: MRG_RandomStreams, averages: OrderedDict
    ) -> tuple[TensorVariable, list[TensorVariable], TensorVariable]:
        """Apply the block; return the output, the posterior, and the remaining length of the stick."""
        active = tt.nnet.relu(self.normalizations[0](x, averages))
        y = tt.nnet.conv2d(active, self.kernels[0], subsample=(self.stride, self.stride))
        y = tt.nnet.conv2d(tt.nnet.relu(self.normalizations[1](y, averages)), self.kernels[1], border_mode=(1, 1))
        y = tt.nnet.conv2d(tt.nnet.relu(self.normalizations[2](y, averages)), self.kernels[2])

        a, b = self.posterior(x)
        uniform = random.uniform(size=(x.shape[0], 1), low=0.01, high=0.99)
        share = (1 - uniform ** (1 / b)) ** (1 / a)
        remaining = (1 - share) * stick

        shortcut = x
        if self.projection is not None:
            shortcut = tt.nnet.conv2d(active, self.projection, subsample=(self.stride, self.stride))
        return remaining.reshape((-1, 1, 1, 1)) * y + shortcut, [a, b], remaining

    def parameters(self) -> list[TensorSharedVariable]:
        """All trained parameters."""
        scales = [p for n in self.normalizations for p in (n.scale, n.offset)]
        projection = [] if self.projection is None else [self.projection]
        return [*self.kernels, *scales, *projection, self.kumaraswamy]


class StickBreakingNet:
    """A net of `depth` layers, where `depth` is 9n+2: holds the parameters, and applies the net to a batch."""

    def __init__(self, depth: int, width: int, pixels: int, classes: int):
        if depth % 9 != 2 or depth < 11:
            raise ValueError(f"the depth of a stick-breaking net is 9n+2, not {depth}")
        self.rng = np.random.RandomState(7)
        self.random = MRG_RandomStreams(1234)
        self.stem = parts.weights(self.rng, width, 3, 3, 3)
        self.phases: list[list[Block]] = []
        channels = width
        for phase, after in enumerate((4 * width, 8 * width, 16 * width)):
            blocks = []
            for block in range(depth // 9):
                stride = 2 if phase and not block else 1
                blocks.append(Block.make(self.rng, (channels, after), pixels, stride))
                channels, pixels = after, pixels // stride
            self.phases.append(blocks)
        self.last = Normalization.make(channels)
        self.matrix, self.bias = parts.weights(self.rng, channels, classes), parts.constant(0.0, classes)

    def __call__(
        self, x: TensorVariable, averages: OrderedDict
    ) -> tuple[TensorVariable, list[TensorVariable], list[TensorVariable]]:
        """Return the class scores and, for each phase, the divergence and the mean number of layers.

        The divergence measures how far the posteriors are from the prior. Layers are counted until the stick of the
        phase is used up.
        """
        divergences, layers = [], []
        y = tt.nnet.conv2d(x, self.stem, border_mode=(1, 1))
        for blocks in self.phases:
            stick = tt.ones((x.shape[0], 1), dtype=theano.config.floatX)
            pairs, sticks = [], []
            for block in blocks:
                y, pair, stick = block(y, stick, self.random, averages)
                pairs.append(pair)
                sticks.append(stick)
            divergences.append(kumaraswamy_divergence(*(tt.concatenate(columns, axis=1) for columns in zip(*pairs))))
            in_use = tt.cast(tt.concatenate(sticks, axis=1) >= 0.01, theano.config.floatX)
            layers.append((in_use.sum(axis=1) * LAYERS_PER_BLOCK).mean())
        y = tt.nnet.relu(self.last(y, averages)).mean(axis=(2, 3))
        return y.dot(self.matrix) + self.bias, divergences, layers

    def parameters(self) -> list[TensorSharedVariable]:
        """All trained parameters."""
        blocks = [p for blocks in self.phases for block in blocks for p in block.parameters()]
        return [self.stem, *blocks, self.last.scale, self.last.offset, self.matrix, self.bias]


def beta_function(a: TensorVariable, b: TensorVariable) -> TensorVariable:
    """Euler's Beta function, computed from logarithms of Gamma."""
    return tt.exp(tt.gammaln(a) + tt.gammaln(b) - tt.gammaln(a + b))


def digamma_by_series(x: TensorVariable) -> TensorVariable:
    """Digamma, computed from series at zero and at infinity, so that its gradient consists of ordinary ops."""
    near = -1 / x - EULER + (np.pi**2 / 6) * x - 1.20205690315959 * x**2 + (np.pi**4 / 90) * x**3
    far = tt.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4)
    return tt.switch(x < 0.53, near, far)


def kumaraswamy_divergence(
    a: TensorVariable, b: TensorVariable, alpha: float = 1.0, beta: float = 5.0, terms: int = 10
) -> TensorVariable:
    """The Kullback-Leibler divergence of Kumaraswamy(`a`, `b`) from Beta(`alpha`, `beta`), summed over columns."""
    series = sum(1 / (m + a * b) * beta_function(m / a, b) for m in range(1, terms + 1))
    divergence = (beta - 1) * b * series
    divergence += (a - alpha) / a * (-EULER - digamma_by_series(b) - 1 / b)
    divergence += tt.log(a * b) + float(betaln(alpha, beta))
    divergence -= (b - 1) / b
    return divergence.sum(axis=1)


@register("sb_resnet", depth=29)
@register("sb_resnet56", depth=56)
def sb_resnet(name: str, depth: int, width: int = 4, batch: int = 4, size: int = 8, classes: int = 10) -> Model:
    """A training step, with Adam, of the stick-breaking net; the outputs are the numbers that its authors observe."""
    net = StickBreakingNet(depth, width, size, classes)
    x, y = tt.tensor4("x"), tt.ivector("y")
    averages: OrderedDict = OrderedDict()

    logits, divergences, layers = net(x, averages)
    likelihood = tt.nnet.categorical_crossentropy(tt.nnet.softmax(logits), y)
    cost = (likelihood + sum(divergences)).mean()
    updates = parts.adam(cost, net.parameters(), rate=3e-4, decay=0.95)
    updates.update(averages)

    outputs = [likelihood.mean(), tt.mean(sum(divergences)), *layers, *(d.mean() for d in divergences)]
    data = [parts.images(net.rng, batch, 3, size), parts.labels(net.rng, batch, classes)]
    return Model(name, [x, y], outputs, updates, data)

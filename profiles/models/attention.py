"""A transformer whose blocks consist of attention and of two dense layers, each after a layer normalization."""

from __future__ import annotations

import numpy as np
import theano.tensor as tt
from theano.tensor.sharedvar import TensorSharedVariable
from theano.tensor.var import TensorVariable

from profiles.models import parts
from profiles.models.base import Model, register

#: The number that layer normalization adds to a variance.
EPSILON = 1e-5


class _Blocks:
    """Applies layers to arrays of shape (batch, token, feature), and collects the parameters of the layers."""

    def __init__(self, width: int, heads: int):
        self.rng = np.random.RandomState(12)
        self.parameters: list[TensorSharedVariable] = []
        self._width, self._heads = width, heads

    def dense(self, x: TensorVariable, narrow: int, wide: int) -> TensorVariable:
        """Multiply by a matrix, and add a bias."""
        matrix = parts.weights(self.rng, narrow, wide, scale=narrow**-0.5)
        bias = parts.constant(0.0, wide)
        self.parameters += [matrix, bias]
        return x.dot(matrix) + bias

    def normalization(self, x: TensorVariable) -> TensorVariable:
        """Apply layer normalization (Ba et al., 2016) over the features of each token."""
        scale, offset = parts.constant(1.0, self._width), parts.constant(0.0, self._width)
        self.parameters += [scale, offset]
        centered = x - x.mean(axis=-1, keepdims=True)
        variance = tt.sqr(centered).mean(axis=-1, keepdims=True)
        return centered / tt.sqrt(variance + EPSILON) * scale + offset

    def attention(self, x: TensorVariable) -> TensorVariable:
        """Let each token attend to all tokens of its sequence (Vaswani et al., 2017)."""
        batch, tokens, width = x.shape[0], x.shape[1], self._width
        each = width // self._heads
        together = self.dense(x, width, 3 * width).reshape((batch, tokens, 3, self._heads, each))
        query, key, value = (
            together[:, :, k].dimshuffle(0, 2, 1, 3).reshape((batch * self._heads, tokens, each)) for k in range(3)
        )
        scores = tt.batched_dot(query, key.dimshuffle(0, 2, 1)) * each**-0.5
        weights = tt.nnet.softmax(scores.reshape((-1, tokens))).reshape(scores.shape)
        mixed = tt.batched_dot(weights, value).reshape((batch, self._heads, tokens, each))
        return self.dense(mixed.dimshuffle(0, 2, 1, 3).reshape((batch, tokens, width)), width, width)

    def feed_forward(self, x: TensorVariable) -> TensorVariable:
        """Apply two dense layers; the first layer is four times as wide as the second one."""
        return self.dense(gelu(self.dense(x, self._width, 4 * self._width)), 4 * self._width, self._width)

    def block(self, x: TensorVariable) -> TensorVariable:
        """Apply attention and dense layers, each with a shortcut around it."""
        x = x + self.attention(self.normalization(x))
        return x + self.feed_forward(self.normalization(x))


def gelu(x: TensorVariable) -> TensorVariable:
    """Return the Gaussian error linear unit (Hendrycks and Gimpel, 2016), approximated with tanh."""
    return 0.5 * x * (1 + tt.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


@register("transformer", blocks=1)
def transformer(
    name: str, blocks: int, width: int = 8, heads: int = 2, tokens: int = 6, batch: int = 3, classes: int = 10
) -> Model:
    """A training step, with Adam, of a transformer; it classifies the mean of the results of `blocks` blocks."""
    if width % heads:
        raise ValueError(f"a width of {width} cannot be divided among {heads} heads; choose a multiple of {heads}")
    net = _Blocks(width, heads)
    x, y = tt.tensor3("x"), tt.ivector("y")
    hidden = x
    for _ in range(blocks):
        hidden = net.block(hidden)
    logits = net.dense(net.normalization(hidden).mean(axis=1), width, classes)
    cost = parts.cross_entropy(logits, y)

    rng = np.random.RandomState(13)
    data = [parts.floats(rng.standard_normal((batch, tokens, width))), parts.labels(rng, batch, classes)]
    return Model(name, [x, y], [cost], parts.adam(cost, net.parameters), data)

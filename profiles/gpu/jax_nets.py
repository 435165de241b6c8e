"""Nets of `profiles.models`, written as JAX users write them, with the same initial values and training rules.

A net consists of a loss and of a training rule. `trainer` takes the initial values from a model's shared variables, so
that JAX and Theano compute the same numbers, within rounding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.models import Model

__all__ = ["NETS", "Net", "trainer"]

#: The parameters of `profiles.models.parts.momentum` and `adam`.
RATE, DECAY = 0.01, 0.9
ADAMS_RATE, DECAY_OF_SQUARES = 1e-3, 0.999
#: Epsilon of Theano's batch normalization, and of the layer normalization of `profiles.models.attention`.
EPSILON_OF_BATCHES, EPSILON_OF_LAYERS = 1e-4, 1e-5

#: A function that takes parameters and data; it returns the cost, and the batch's means and variances for running
#: averages.
Loss = Callable[..., tuple[Any, list[Any]]]


@dataclass(frozen=True)
class Net:
    """A net for JAX.

    The loss takes the parameters (in the order in which the model trains them), the data, and named sizes. The training
    rule is 'momentum' or 'adam'.
    """

    loss: Loss
    rule: str


def _cross_entropy(logits: Any, labels: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


def _squares(arrays: Sequence[Any], strength: float) -> Any:
    return strength * sum((array**2).sum() for array in arrays)


def _mlp(parameters: list[Any], x: Any, y: Any) -> tuple[Any, list[Any]]:
    import jax

    half = len(parameters) // 2
    matrices, biases = parameters[:half], parameters[half:]
    for matrix, bias in zip(matrices[:-1], biases[:-1], strict=True):
        x = jax.nn.relu(x @ matrix + bias)
    return _cross_entropy(x @ matrices[-1] + biases[-1], y) + _squares(matrices, 1e-4), []


def _lstm(parameters: list[Any], words: Any, following: Any) -> tuple[Any, list[Any]]:
    import jax
    import jax.numpy as jnp
    from jax import lax

    embedding, *layers, matrix, bias = parameters
    hidden = embedding[words]

    def layer(x: Any, inward: Any, across: Any, bias: Any) -> Any:
        def step(state: tuple[Any, Any], drive: Any) -> tuple[tuple[Any, Any], Any]:
            hidden, cell = state
            enter, forget, leave, new = jnp.split(drive + hidden @ across, 4, axis=1)
            cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
            hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
            return (hidden, cell), hidden

        start = jnp.zeros((x.shape[1], across.shape[0]), x.dtype)
        return lax.scan(step, (start, start), x @ inward + bias)[1]

    for first in range(0, len(layers), 3):
        hidden = layer(hidden, *layers[first : first + 3])
    logits = (hidden @ matrix + bias).reshape(-1, len(bias))
    return _cross_entropy(logits, following.ravel()), []


def _gru(parameters: list[Any], x: Any, y: Any) -> tuple[Any, list[Any]]:
    import jax
    import jax.numpy as jnp
    from jax import lax

    inward, across, biases, (matrix, offset) = (parameters[first : first + 3] for first in (0, 3, 6, 9))

    def step(hidden: Any, x: Any) -> tuple[Any, None]:
        reset, update = (jax.nn.sigmoid(x @ inward[k] + hidden @ across[k] + biases[k]) for k in range(2))
        new = jnp.tanh(x @ inward[2] + (reset * hidden) @ across[2] + biases[2])
        return (1 - update) * hidden + update * new, None

    start = jnp.zeros((x.shape[1], across[0].shape[0]), x.dtype)
    hidden, _ = lax.scan(step, start, x, unroll=True)  # the graph of Theano's model is also unrolled
    return _cross_entropy(hidden @ matrix + offset, y), []


def _cifar_resnet(parameters: list[Any], x: Any, y: Any, n: int) -> tuple[Any, list[Any]]:
    import jax
    from jax import lax

    kernels, scales = _kernels_and_scales(parameters)
    matrix, bias = parameters[-2:]
    moments: list[Any] = []
    layers = iter(zip(kernels, scales, strict=True))

    def layer(x: Any, stride: int) -> Any:
        kernel, (scale, offset) = next(layers)
        pad = kernel.shape[-1] // 2
        y = lax.conv_general_dilated(x, kernel, (stride, stride), [(pad, pad)] * 2)
        mean, variance = y.mean((0, 2, 3)), y.var((0, 2, 3))
        count = y.size // len(mean)
        moments.extend([mean, variance * (count / (count - 1))])
        factor = scale * lax.rsqrt(variance + EPSILON_OF_BATCHES)
        return (y - mean[:, None, None]) * factor[:, None, None] + offset[:, None, None]

    x = jax.nn.relu(layer(x, 1))
    for stage in range(3):
        for block in range(n):
            stride = 2 if stage and not block else 1
            h = jax.nn.relu(layer(x, stride))
            h = layer(jax.nn.relu(layer(h, 1)), 1)
            x = jax.nn.relu(h + (x if block else layer(x, stride)))
    cost = _cross_entropy(x.mean((2, 3)) @ matrix + bias, y)
    return cost + _squares([*kernels, matrix], 1e-4), moments


def _kernels_and_scales(parameters: Sequence[Any]) -> tuple[list[Any], list[tuple[Any, Any]]]:
    kernels = [value for value in parameters if value.ndim == 4]
    plain = parameters[len(kernels) : 3 * len(kernels)]
    return kernels, list(zip(plain[::2], plain[1::2], strict=True))


def _transformer(parameters: list[Any], x: Any, y: Any, heads: int, blocks: int = 1) -> tuple[Any, list[Any]]:
    import jax

    batch, tokens, width = x.shape
    pairs = iter(zip(parameters[::2], parameters[1::2], strict=True))

    def normalized(x: Any) -> Any:
        scale, offset = next(pairs)
        centered = x - x.mean(-1, keepdims=True)
        variance = (centered**2).mean(-1, keepdims=True)
        return centered * jax.lax.rsqrt(variance + EPSILON_OF_LAYERS) * scale + offset

    def dense(x: Any) -> Any:
        matrix, bias = next(pairs)
        return x @ matrix + bias

    def attention(x: Any) -> Any:
        together = dense(x).reshape(batch, tokens, 3, heads, width // heads)
        query, key, value = together.transpose(2, 0, 3, 1, 4)
        weights = jax.nn.softmax(query @ key.swapaxes(-1, -2) * (width // heads) ** -0.5)
        return dense((weights @ value).swapaxes(1, 2).reshape(batch, tokens, width))

    for _ in range(blocks):
        x = x + attention(normalized(x))
        x = x + dense(jax.nn.gelu(dense(normalized(x))))
    return _cross_entropy(dense(normalized(x).mean(1)), y), []


#: The nets, by the names that `profiles.models` uses.
NETS: Mapping[str, Net] = {
    "mlp": Net(_mlp, "momentum"),
    "lstm": Net(_lstm, "momentum"),
    "gru30": Net(_gru, "adam"),
    "cifar_resnet": Net(_cifar_resnet, "momentum"),
    "transformer": Net(_transformer, "adam"),
}


def _values(model: Model) -> list[np.ndarray]:
    """Return a model's initial values; flip the filters, because Theano convolves, and JAX correlates."""
    values = [variable.get_value() for variable in model.updates]
    return [value[..., ::-1, ::-1] if value.ndim == 4 else value for value in values]


def trainer(model: Model, **sizes: int) -> tuple[Callable[..., Any], Any]:
    """Return a training step of a model in JAX, and its first state.

    The step takes the state and the data, and returns a new state and the cost; the memory of the old state is reused.
    `sizes` has the sizes that the parameters' shapes do not determine, such as `heads` of transformer.
    """
    import jax
    import jax.numpy as jnp

    net = NETS[model.name]
    loss = functools.partial(net.loss, **sizes)
    values = _values(model)
    state: tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray] | np.float32]
    if net.rule == "adam":
        parameters = values[2::3]
        state = parameters, [np.zeros_like(value) for value in parameters * 2], np.float32(0)
        rule = _adam
    else:
        kernels = sum(value.ndim == 4 for value in values) // 2
        averages = values[len(values) - 2 * kernels :]
        parameters = values[1 : len(values) - 2 * kernels : 2]
        state = parameters, [np.zeros_like(value) for value in parameters], averages
        rule = _momentum

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: Any, *data: Any) -> tuple[Any, Any]:
        (cost, moments), gradients = jax.value_and_grad(loss, has_aux=True)(state[0], *data)
        return rule(state, gradients, moments), cost

    return step, jax.tree.map(jnp.asarray, state)


def _momentum(state: Any, gradients: list[Any], moments: list[Any]) -> Any:
    parameters, velocities, averages = state
    velocities = [DECAY * v - RATE * g for v, g in zip(velocities, gradients, strict=True)]
    parameters = [p + v for p, v in zip(parameters, velocities, strict=True)]
    return parameters, velocities, [0.9 * a + 0.1 * m for a, m in zip(averages, moments, strict=True)]


def _adam(state: Any, gradients: list[Any], moments: list[Any]) -> Any:
    import jax.numpy as jnp

    parameters, (means, squares), count = state[0], (state[1][: len(gradients)], state[1][len(gradients) :]), state[2]
    count = count + 1
    means = [DECAY * m + (1 - DECAY) * g for m, g in zip(means, gradients, strict=True)]
    squares = [DECAY_OF_SQUARES * s + (1 - DECAY_OF_SQUARES) * g**2 for s, g in zip(squares, gradients, strict=True)]
    rate, unbiased = ADAMS_RATE / (1 - DECAY**count), 1 / (1 - DECAY_OF_SQUARES**count)
    parameters = [
        p - rate * m / (jnp.sqrt(s * unbiased) + 1e-8) for p, m, s in zip(parameters, means, squares, strict=True)
    ]
    return parameters, means + squares, count

"""Recurrent nets: an LSTM language model with ``theano.scan``, and a GRU whose steps are unrolled in the graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import theano
import theano.tensor as tt
from theano.tensor.sharedvar import TensorSharedVariable
from theano.tensor.var import TensorVariable

from profiles.models import parts
from profiles.models.base import Model, register


def _lstm_layer(
    rng: np.random.RandomState, x: TensorVariable, width: int
) -> tuple[TensorVariable, list[TensorSharedVariable]]:
    """Apply one LSTM layer to a sequence of shape (time, batch, feature); one product computes all four gates."""
    inward = parts.weights(rng, width, 4 * width, scale=0.3)
    across = parts.weights(rng, width, 4 * width, scale=0.3)
    bias = parts.constant(0.0, 4 * width)

    def step(
        drive: TensorVariable, hidden: TensorVariable, cell: TensorVariable, across: TensorVariable
    ) -> list[TensorVariable]:
        gates = drive + hidden.dot(across)
        enter, forget, leave, new = (gates[:, k * width : (k + 1) * width] for k in range(4))
        cell = tt.nnet.sigmoid(forget) * cell + tt.nnet.sigmoid(enter) * tt.tanh(new)
        return [tt.nnet.sigmoid(leave) * tt.tanh(cell), cell]

    start = tt.zeros((x.shape[1], width), dtype=theano.config.floatX)
    (hidden, _), _ = theano.scan(
        step, sequences=x.dot(inward) + bias, outputs_info=[start, start], non_sequences=across
    )
    return hidden, [inward, across, bias]


@register("lstm", layers=2)
def lstm(name: str, layers: int, width: int = 8, steps: int = 6, batch: int = 3, vocabulary: int = 20) -> Model:
    """A training step of a language model: an embedding, LSTM `layers`, and a softmax over the next word."""
    rng = np.random.RandomState(5)
    words, following = tt.imatrix("words"), tt.imatrix("following")
    embedding = parts.weights(rng, vocabulary, width, scale=0.5)
    parameters = [embedding]

    hidden = embedding[words]
    for _ in range(layers):
        hidden, new = _lstm_layer(rng, hidden, width)
        parameters += new
    matrix, bias = parts.weights(rng, width, vocabulary), parts.constant(0.0, vocabulary)
    parameters += [matrix, bias]
    logits = (hidden.dot(matrix) + bias).reshape((-1, vocabulary))
    cost = parts.cross_entropy(logits, following.flatten())

    data = [rng.randint(0, vocabulary, size=(steps, batch)).astype("int32") for _ in range(2)]
    return Model(name, [words, following], [cost], parts.momentum(cost, parameters), data)


def _written_out_sigmoid(x: TensorVariable) -> TensorVariable:
    return 1 / (1 + tt.exp(-x))


@register("gru30", steps=30)
@register("gru30_gates", steps=30, width=32, batch=8, sigmoid=_written_out_sigmoid)
def gru(
    name: str,
    steps: int,
    width: int = 8,
    batch: int = 4,
    classes: int = 5,
    sigmoid: Callable[[TensorVariable], TensorVariable] = tt.nnet.sigmoid,
) -> Model:
    """A training step, with Adam, of a GRU whose `steps` are unrolled in the graph.

    If `sigmoid` is written as ``1 / (1 + exp(-x))``, the gradients in canonical form have sums with up to one term per
    step.
    """
    rng = np.random.RandomState(6)
    x, y = tt.tensor3("x"), tt.ivector("y")
    inward = [parts.weights(rng, width, width) for _ in range(3)]
    across = [parts.weights(rng, width, width, scale=0.3) for _ in range(3)]
    biases = [parts.constant(0.0, width) for _ in range(3)]
    matrix, offset = parts.weights(rng, width, classes), parts.constant(0.0, classes)

    hidden = tt.zeros((x.shape[1], width), dtype=theano.config.floatX)
    for t in range(steps):
        reset, update = (sigmoid(x[t].dot(inward[k]) + hidden.dot(across[k]) + biases[k]) for k in range(2))
        new = tt.tanh(x[t].dot(inward[2]) + (reset * hidden).dot(across[2]) + biases[2])
        hidden = (1 - update) * hidden + update * new
    cost = parts.cross_entropy(hidden.dot(matrix) + offset, y)

    data = [parts.floats(rng.standard_normal((steps, batch, width))), parts.labels(rng, batch, classes)]
    return Model(name, [x, y], [cost], parts.adam(cost, [*inward, *across, *biases, matrix, offset]), data)

"""Training steps of Lasagne nets: dense, convolutional, recurrent, unrolled and variational nets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import theano
import theano.tensor as tt
from theano.gof.graph import Variable
from theano.sandbox.rng_mrg import MRG_RandomStreams

from models.registry import Entry, register
from models.zoo.captured import unique_updates
from profiles.models import Model


class Step:
    """A training step: arguments for theano.function (the first output is the loss), and arrays for the inputs."""

    def __init__(self, inputs: list[Variable], outputs: list[Variable], updates: OrderedDict, data: list[Any]):
        self.inputs, self.outputs, self.updates, self.data = inputs, outputs, updates, data


Maker = Callable[..., Step]


def lasagne_model(name: str) -> Callable[[Maker], Maker]:
    """Register the decorated function, which takes Lasagne, a random generator and sizes, and returns a step."""

    def enter(maker: Maker) -> Maker:
        def build(name: str, **sizes: object) -> Model:
            rng = np.random.RandomState(13)
            step = maker(import_lasagne(), rng, **sizes)
            typed = [np.asarray(value, symbol.type.dtype) for symbol, value in zip(step.inputs, step.data, strict=True)]
            return Model(name, step.inputs, step.outputs, unique_updates(step.updates), typed)

        build.__doc__ = maker.__doc__
        register(Entry(name, "Lasagne", build, "float32"))
        return maker

    return enter


def import_lasagne() -> ModuleType:
    """Import Lasagne; reset the seeds of initial weights and noise, so that each build draws the same numbers."""
    import lasagne

    lasagne.random.set_rng(np.random.RandomState(13))
    return lasagne


def _classifier_step(
    lasagne: ModuleType,
    net: Any,
    inputs: list[Any],
    data: list[np.ndarray],
    rng: np.random.RandomState,
    classes: int,
    update: Callable[[Any, Any], Any],
) -> Step:
    """Return the step of a net with a softmax at its end, with weight decay and accuracy."""
    y = tt.ivector("y")
    predicted = lasagne.layers.get_output(net)
    decay = lasagne.regularization.regularize_network_params(net, lasagne.regularization.l2)
    loss = lasagne.objectives.categorical_crossentropy(predicted, y).mean() + 1e-4 * decay
    accuracy = tt.mean(tt.eq(tt.argmax(predicted, axis=1), y), dtype=theano.config.floatX)
    updates = update(loss, lasagne.layers.get_all_params(net, trainable=True))
    labels = rng.randint(classes, size=len(data[0]))
    return Step([*inputs, y], [loss, accuracy], updates, [*data, labels])


@lasagne_model("lasagne_mlp")
def mlp(lasagne: ModuleType, rng: np.random.RandomState, batch: int = 6, width: int = 16) -> Step:
    """Dense layers with dropout, and Nesterov's momentum."""
    x = tt.matrix("x")
    net = lasagne.layers.dropout(lasagne.layers.InputLayer((None, width), x), 0.2)
    for _ in range(2):
        net = lasagne.layers.dropout(lasagne.layers.DenseLayer(net, width), 0.5)
    net = lasagne.layers.DenseLayer(net, 10, nonlinearity=lasagne.nonlinearities.softmax)

    def update(loss: Any, parameters: Any) -> Any:
        return lasagne.updates.nesterov_momentum(loss, parameters, 0.01, 0.9)

    return _classifier_step(lasagne, net, [x], [rng.standard_normal((batch, width))], rng, 10, update)


@lasagne_model("lasagne_maxout")
def maxout(lasagne: ModuleType, rng: np.random.RandomState, batch: int = 6, width: int = 12) -> Step:
    """Maxout and winner-take-all layers, Gaussian noise, norm constraints, and Adadelta."""
    layers = lasagne.layers
    x = tt.matrix("x")
    net = layers.GaussianNoiseLayer(layers.InputLayer((None, width), x), 0.1)
    net = layers.FeaturePoolLayer(layers.DenseLayer(net, 4 * width, nonlinearity=None), 4)
    net = layers.FeatureWTALayer(
        layers.DenseLayer(net, 2 * width, nonlinearity=lasagne.nonlinearities.very_leaky_rectify), 2
    )
    net = layers.DenseLayer(net, 5, nonlinearity=lasagne.nonlinearities.softmax)

    def update(loss: Any, parameters: Any) -> Any:
        updates = lasagne.updates.adadelta(loss, parameters)
        for parameter in parameters:
            if parameter.ndim == 2:
                updates[parameter] = lasagne.updates.norm_constraint(updates[parameter], 1.0)
        return updates

    return _classifier_step(lasagne, net, [x], [rng.standard_normal((batch, width))], rng, 5, update)


@lasagne_model("lasagne_cnn")
def cnn(lasagne: ModuleType, rng: np.random.RandomState, batch: int = 4, size: int = 12, width: int = 4) -> Step:
    """Lasagne's first example: convolutions, max-pooling, response normalization, dropout, and momentum."""
    layers = lasagne.layers
    x = tt.tensor4("x")
    net = layers.InputLayer((None, 1, size, size), x)
    net = layers.MaxPool2DLayer(layers.Conv2DLayer(net, width, 3), 2)
    net = layers.LocalResponseNormalization2DLayer(net)
    net = layers.MaxPool2DLayer(layers.Conv2DLayer(net, 2 * width, 2, pad="same"), 2)
    net = layers.DenseLayer(layers.dropout(net, 0.5), 4 * width)
    net = layers.DenseLayer(layers.dropout(net, 0.5), 10, nonlinearity=lasagne.nonlinearities.softmax)

    def update(loss: Any, parameters: Any) -> Any:
        return lasagne.updates.momentum(loss, parameters, 0.01)

    return _classifier_step(lasagne, net, [x], [rng.standard_normal((batch, 1, size, size))], rng, 10, update)


@lasagne_model("lasagne_inception")
def inception(lasagne: ModuleType, rng: np.random.RandomState, batch: int = 2, size: int = 10, width: int = 3) -> Step:
    """Blocks of concatenated convolutions with a residual path, global pooling, and Adam."""
    layers = lasagne.layers
    x = tt.tensor4("x")
    net = layers.Conv2DLayer(layers.InputLayer((None, 3, size, size), x), 3 * width, 3, pad=1)
    for _ in range(2):
        branches = [
            layers.Conv2DLayer(net, width, 1),
            layers.Conv2DLayer(layers.Conv2DLayer(net, width, 1), width, 3, pad=1),
            layers.Conv2DLayer(layers.Pool2DLayer(net, 3, stride=1, pad=1, mode="average_inc_pad"), width, 1),
        ]
        net = layers.ElemwiseSumLayer([net, layers.ConcatLayer(branches)])
        net = layers.NonlinearityLayer(net, lasagne.nonlinearities.leaky_rectify)
    net = layers.DenseLayer(layers.GlobalPoolLayer(net), 5, nonlinearity=lasagne.nonlinearities.softmax)
    return _classifier_step(
        lasagne, net, [x], [rng.standard_normal((batch, 3, size, size))], rng, 5, lasagne.updates.adam
    )


@lasagne_model("lasagne_signal")
def signal(lasagne: ModuleType, rng: np.random.RandomState, batch: int = 3, steps: int = 20, width: int = 4) -> Step:
    """One-dimensional convolutions and pooling over a signal, and Adagrad."""
    layers = lasagne.layers
    x = tt.tensor3("x")
    net = layers.Conv1DLayer(layers.InputLayer((None, 2, steps), x), width, 5, stride=2)
    net = layers.MaxPool1DLayer(layers.PadLayer(net, 1, batch_ndim=2), 2)
    net = layers.DenseLayer(net, 4, nonlinearity=lasagne.nonlinearities.softmax)

    def update(loss: Any, parameters: Any) -> Any:
        return lasagne.updates.adagrad(loss, parameters, 0.01)

    return _classifier_step(lasagne, net, [x], [rng.standard_normal((batch, 2, steps))], rng, 4, update)


@lasagne_model("lasagne_lstm")
def lstm(
    lasagne: ModuleType,
    rng: np.random.RandomState,
    batch: int = 3,
    steps: int = 5,
    width: int = 6,
    unroll: bool = False,
) -> Step:
    """Bidirectional LSTM layers with peepholes, masks and clipped gradients, and Adagrad."""
    layers = lasagne.layers
    words, mask = tt.imatrix("words"), tt.matrix("mask")
    masked = layers.InputLayer((None, steps), mask)
    embedded = layers.EmbeddingLayer(layers.InputLayer((None, steps), words), 20, width)
    forwards = layers.LSTMLayer(embedded, width, mask_input=masked, grad_clipping=10.0, unroll_scan=unroll)
    backwards = layers.LSTMLayer(embedded, width, mask_input=masked, backwards=True, unroll_scan=unroll)
    summed = layers.ElemwiseSumLayer([forwards, backwards])
    net = layers.DenseLayer(layers.SliceLayer(summed, -1, 1), 4, nonlinearity=lasagne.nonlinearities.softmax)

    def update(loss: Any, parameters: Any) -> Any:
        return lasagne.updates.adagrad(loss, parameters, 0.1)

    lengths = 1 + np.arange(batch) % steps
    data = [rng.randint(20, size=(batch, steps)), np.arange(steps) < lengths[:, None]]
    return _classifier_step(lasagne, net, [words, mask], data, rng, 4, update)


@lasagne_model("lasagne_unrolled")
def unrolled(lasagne: ModuleType, rng: np.random.RandomState, batch: int = 3, steps: int = 4, width: int = 6) -> Step:
    """The LSTM layers of lasagne_lstm, unrolled instead of in a Scan."""
    return lstm(lasagne, rng, batch, steps, width, unroll=True)


@lasagne_model("lasagne_gru")
def gru(lasagne: ModuleType, rng: np.random.RandomState, batch: int = 3, steps: int = 5, width: int = 6) -> Step:
    """GRU layers with learned initial states, one output per step, a bounded total norm of gradients, and RMSprop."""
    layers = lasagne.layers
    x, target = tt.tensor3("x"), tt.matrix("target")
    net = layers.InputLayer((None, steps, width), x)
    for _ in range(2):
        net = layers.GRULayer(net, width, learn_init=True, precompute_input=False)
    flat = layers.DenseLayer(layers.ReshapeLayer(net, (-1, width)), 1, nonlinearity=None)
    predicted = layers.get_output(flat).reshape((-1, steps))
    loss = lasagne.objectives.squared_error(predicted, target).mean()
    parameters = layers.get_all_params(flat, trainable=True)
    gradients, norm = lasagne.updates.total_norm_constraint(tt.grad(loss, parameters), 5, return_norm=True)
    updates = lasagne.updates.rmsprop(gradients, parameters, 0.01)
    data = [rng.standard_normal((batch, steps, width)), rng.standard_normal((batch, steps))]
    return Step([x, target], [loss, norm], updates, data)


@lasagne_model("lasagne_recurrent")
def recurrent(lasagne: ModuleType, rng: np.random.RandomState, batch: int = 3, steps: int = 5, width: int = 6) -> Step:
    """A custom recurrent layer, then a plain one whose last state is used, and SGD."""
    layers = lasagne.layers
    x, y = tt.tensor3("x"), tt.matrix("y")
    first = layers.InputLayer((None, steps, width), x)
    hidden = layers.DenseLayer(layers.InputLayer((None, width)), width, nonlinearity=None)
    again = layers.DenseLayer(layers.InputLayer((None, width)), width, nonlinearity=None)
    custom = layers.CustomRecurrentLayer(first, hidden, again, nonlinearity=lasagne.nonlinearities.tanh)
    plain = layers.RecurrentLayer(layers.dropout(custom, 0.2), width)
    net = layers.DenseLayer(layers.SliceLayer(plain, -1, 1), 1, nonlinearity=lasagne.nonlinearities.sigmoid)
    loss = lasagne.objectives.binary_crossentropy(layers.get_output(net), y).mean()
    updates = lasagne.updates.sgd(loss, layers.get_all_params(net, trainable=True), 0.1)
    data = [rng.standard_normal((batch, steps, width)), rng.randint(2, size=(batch, 1))]
    return Step([x, y], [loss], updates, data)


@lasagne_model("lasagne_vae")
def vae(lasagne: ModuleType, rng: np.random.RandomState, batch: int = 4, width: int = 16, latent: int = 3) -> Step:
    """A variational autoencoder with noise from Theano's streams, a loss written by hand, and Adam."""
    layers = lasagne.layers
    x = tt.matrix("x")
    encoded = layers.DenseLayer(layers.InputLayer((None, width), x), width, nonlinearity=lasagne.nonlinearities.tanh)
    mean_layer = layers.DenseLayer(encoded, latent, nonlinearity=None)
    deviation_layer = layers.DenseLayer(encoded, latent, nonlinearity=tt.nnet.softplus)
    mean, deviation = layers.get_output([mean_layer, deviation_layer])
    drawn = mean + deviation * MRG_RandomStreams(7).normal(mean.shape)
    decoder = layers.DenseLayer(layers.InputLayer((None, latent), drawn), width)
    decoder = layers.DenseLayer(decoder, width, nonlinearity=lasagne.nonlinearities.sigmoid)
    likelihood = -lasagne.objectives.binary_crossentropy(layers.get_output(decoder), x).sum(axis=1)
    divergence = 0.5 * (mean**2 + deviation**2 - 1 - 2 * tt.log(deviation + 1e-6)).sum(axis=1)
    loss = (divergence - likelihood).mean()
    parameters = layers.get_all_params([mean_layer, deviation_layer, decoder], trainable=True)
    data = [(rng.uniform(size=(batch, width)) > 0.5)]
    return Step([x], [loss, divergence.mean()], lasagne.updates.adam(loss, parameters, 0.01), data)


@lasagne_model("lasagne_autoencoder")
def autoencoder(lasagne: ModuleType, rng: np.random.RandomState, batch: int = 4, size: int = 6, width: int = 5) -> Step:
    """A denoising autoencoder with tied weights, a fixed batch size, and SGD with Nesterov's momentum."""
    layers = lasagne.layers
    x = tt.tensor4("x")
    first = layers.InputLayer((batch, 1, size, size), x)
    noisy = layers.GaussianNoiseLayer(layers.dropout(first, 0.3), 0.1)
    narrow = layers.DenseLayer(noisy, width, nonlinearity=lasagne.nonlinearities.tanh)
    decoded = tt.nnet.sigmoid(layers.get_output(narrow).dot(narrow.W.T))
    net = layers.ReshapeLayer(layers.InputLayer((batch, size * size), decoded), ([0], 1, size, size))
    loss = lasagne.objectives.squared_error(layers.get_output(net), x).mean()
    updates = lasagne.updates.apply_nesterov_momentum(lasagne.updates.sgd(loss, [narrow.W, narrow.b], 0.01))
    return Step([x], [loss], updates, [rng.standard_normal((batch, 1, size, size))])

"""Random stacks of layers, written in Theano as Keras 2.3 does, with a loss, its gradient and an optimizer."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import theano
import theano.tensor as tt
from theano.ifelse import ifelse
from theano.sandbox.rng_mrg import MRG_RandomStreams
from theano.tensor.signal.pool import pool_2d

from fuzzing.quality.drawn import Drawn

__all__ = ["draw"]

STEPS, WIDTH, VOCABULARY, SIDE = 12, 4, 20, 8
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda x: x,
    "relu": tt.nnet.relu,
    "tanh": tt.tanh,
    "sigmoid": tt.nnet.sigmoid,
    "hard_sigmoid": tt.nnet.hard_sigmoid,
    "softplus": tt.nnet.softplus,
    "elu": tt.nnet.elu,
    "softsign": lambda x: x / (1 + abs(x)),
}


def draw(seed: int) -> Drawn:
    """Draw a net from a seed; equal seeds give equal nets."""
    return _Net(random.Random(f"net {seed}")).drawn()


class _Net:
    """Builds a net of random layers, and collects its weights and updates."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.numbers = np.random.RandomState(rng.randrange(2**31))
        self.noise = MRG_RandomStreams(rng.randrange(1, 2**31))
        self.phase = tt.scalar("learning_phase", "uint8")
        self.words: list[str] = []
        self.weights: list[Any] = []
        self.updates: OrderedDict[Any, Any] = OrderedDict()
        self.is_phased = False
        #: The shape of the value, without the batch axis.
        self.shape: tuple[int, ...] = ()

    def drawn(self) -> Drawn:
        x = self._start()
        for _ in range(self.rng.randint(1, 6)):
            layer = self.rng.choice(_LAYERS[len(self.shape)])
            layer(self)
            self.words.append(layer.__name__.strip("_"))
        loss, inputs = self._loss()
        self._optimize(loss)
        inputs = [x, *inputs, *([self.phase] if self.is_phased else [])]
        return Drawn(" ".join(self.words), inputs, [loss], self.updates)

    def weight(self, *shape: int) -> Any:
        value = self.numbers.uniform(-0.3, 0.3, shape).astype(theano.config.floatX)
        self.weights.append(theano.shared(value, f"w{len(self.weights)}"))
        return self.weights[-1]

    def activated(self, x: Any) -> Any:
        name = self.rng.choice(list(ACTIVATIONS))
        self.words.append(name)
        return ACTIVATIONS[name](x)

    def in_train_phase(self, trained: Any, tested: Any) -> Any:
        self.is_phased = True
        return ifelse(self.phase, trained, tt.patternbroadcast(tested, trained.broadcastable))

    def _start(self) -> Any:
        kind = self.rng.choice(("words", "sequence", "image", "rows"))
        self.words.append(kind)
        if kind == "words":
            x = tt.matrix("words")
            self.x, self.shape = self.weight(VOCABULARY, WIDTH)[tt.cast(x, "int32")], (STEPS, WIDTH)
            return x
        x = {"sequence": tt.tensor3, "image": tt.tensor4, "rows": tt.matrix}[kind]("x")
        self.x = x
        self.shape = {"sequence": (STEPS, WIDTH), "image": (SIDE, SIDE, WIDTH), "rows": (WIDTH,)}[kind]
        return x

    def _loss(self) -> tuple[Any, list[Any]]:
        if len(self.shape) > 1:
            _flatten(self)
        kind = self.rng.choice(("mse", "binary", "categorical", "sparse", "hinge"))
        self.words.append(kind)
        units = 3 if kind in ("categorical", "sparse") else 1
        scores = tt.dot(self.x, self.weight(self.shape[0], units)) + self.weight(units)
        target = tt.matrix("target")
        tiny = 1e-7
        if kind == "mse":
            loss = tt.mean(tt.sqr(scores - target), axis=-1)
        elif kind == "binary":
            loss = tt.mean(tt.nnet.binary_crossentropy(tt.clip(tt.nnet.sigmoid(scores), tiny, 1 - tiny), target), -1)
        elif kind == "hinge":
            loss = tt.mean(tt.maximum(1.0 - target * scores, 0.0), axis=-1)
        else:
            p = tt.nnet.softmax(scores)
            p = tt.clip(p / p.sum(axis=-1, keepdims=True), tiny, 1.0 - tiny)
            if kind == "sparse":
                one_hot = tt.extra_ops.to_one_hot(tt.cast(target.flatten(), "int32"), nb_class=units)
                loss = tt.nnet.categorical_crossentropy(p, one_hot.reshape(p.shape))
            else:
                loss = tt.nnet.categorical_crossentropy(p, target)
        if self.rng.random() < 0.6:
            weights = tt.vector("sample_weights")
            loss = loss * weights
            loss /= tt.mean(tt.cast(tt.neq(weights, 0), theano.config.floatX))
            inputs = [target, weights]
        else:
            inputs = [target]
        total = tt.mean(loss)
        if self.rng.random() < 0.3:
            total += 0.01 * sum(tt.sum(tt.sqr(w)) for w in self.weights)
        return total, inputs

    def _optimize(self, loss: Any) -> None:
        kind = self.rng.choice(("sgd", "momentum", "adam", "rmsprop", "none"))
        self.words.append(kind)
        if kind == "none":
            return
        gradients = theano.grad(loss, self.weights, disconnected_inputs="ignore")
        if self.rng.random() < 0.3:
            norm = tt.sqrt(sum(tt.sum(tt.sqr(g)) for g in gradients))
            gradients = [tt.switch(norm >= 1.0, g * 1.0 / norm, g) for g in gradients]
            self.words.append("clipnorm")
        count = theano.shared(np.asarray(0, "int64"), "iterations")
        self.updates[count] = count + 1
        t = tt.cast(count, theano.config.floatX) + 1
        for w, g in zip(self.weights, gradients):
            self._step(kind, w, g, t)

    def _step(self, kind: str, w: Any, g: Any, t: Any) -> None:
        rate = 0.01
        first, second = (theano.shared(np.zeros_like(w.get_value())) for _ in "ab")
        if kind == "sgd":
            new = w - rate * g
        elif kind == "momentum":
            velocity = 0.9 * first - rate * g
            self.updates[first] = _cast(velocity)
            new = w + 0.9 * velocity - rate * g
        elif kind == "rmsprop":
            squares = 0.9 * first + 0.1 * tt.sqr(g)
            self.updates[first] = _cast(squares)
            new = w - rate * g / (tt.sqrt(tt.clip(squares, 0.0, np.inf)) + 1e-7)
        else:
            rate = rate * (tt.sqrt(tt.clip(1.0 - tt.pow(0.999, t), 0.0, np.inf)) / (1.0 - tt.pow(0.9, t)))
            m, v = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * tt.sqr(g)
            self.updates[first], self.updates[second] = _cast(m), _cast(v)
            new = w - rate * m / (tt.sqrt(tt.clip(v, 0.0, np.inf)) + 1e-7)
        self.updates[w] = _cast(new)


def _cast(x: Any) -> Any:
    return tt.cast(x, theano.config.floatX)


def _squeezed(x: Any, axis: int) -> Any:
    lengths = list(x.shape)
    del lengths[axis]
    return x.reshape(tuple(lengths))


def _dense(net: _Net) -> None:
    units = net.rng.randint(2, 6)
    net.x = net.activated(tt.dot(net.x, net.weight(net.shape[-1], units)) + net.weight(units))
    net.shape = (*net.shape[:-1], units)


def _dropout(net: _Net) -> None:
    keep = net.rng.choice((0.5, 0.75))
    kept = net.x * net.noise.binomial(net.x.shape, p=keep, dtype=net.x.dtype) / keep
    net.x = net.in_train_phase(kept, net.x)


def _noise(net: _Net) -> None:
    net.x = net.in_train_phase(net.x + net.noise.normal(net.x.shape, std=0.1, dtype=net.x.dtype), net.x)


def _activation(net: _Net) -> None:
    net.x = net.activated(net.x)


def _residual(net: _Net) -> None:
    before, shape = net.x, net.shape
    net.x = net.activated(tt.dot(net.x, net.weight(shape[-1], shape[-1])))
    net.x = net.rng.choice((lambda a, b: a + b, lambda a, b: a * b, tt.maximum))(net.x, before)


def _joined(net: _Net) -> None:
    units = net.rng.randint(1, 3)
    other = net.activated(tt.dot(net.x, net.weight(net.shape[-1], units)))
    net.x = tt.concatenate([net.x, other], axis=-1)
    net.shape = (*net.shape[:-1], net.shape[-1] + units)


def _normalized(net: _Net) -> None:
    """Add a batch normalization with moving averages."""
    axes = tuple(range(net.x.ndim - 1))
    gamma, beta = net.weight(net.shape[-1]), net.weight(net.shape[-1])
    mean, variance = net.x.mean(axes), net.x.var(axes)
    moving = [theano.shared(np.ones(net.shape[-1], theano.config.floatX)) for _ in "ab"]
    for old, now in zip(moving, (mean, variance)):
        net.updates[old] = _cast(old * 0.99 + now * 0.01)
    pattern = ["x"] * (net.x.ndim - 1) + [0]

    def normalize(mean: Any, variance: Any) -> Any:
        centered = (net.x - mean.dimshuffle(pattern)) / tt.sqrt(variance.dimshuffle(pattern) + 1e-3)
        return centered * gamma.dimshuffle(pattern) + beta.dimshuffle(pattern)

    net.x = net.in_train_phase(normalize(mean, variance), normalize(*moving))


def _layer_normalized(net: _Net) -> None:
    mean, variance = net.x.mean(-1, keepdims=True), net.x.var(-1, keepdims=True)
    net.x = (net.x - mean) / tt.sqrt(variance + 1e-3) * net.weight(net.shape[-1])


def _flatten(net: _Net) -> None:
    size = int(np.prod(net.shape))
    net.x = tt.reshape(net.x, (net.x.shape[0], tt.prod(net.x.shape) // net.x.shape[0]))
    net.shape = (size,)


def _repeat(net: _Net) -> None:
    net.x = tt.extra_ops.repeat(net.x.dimshuffle((0, "x", 1)), STEPS, axis=1)
    net.shape = (STEPS, *net.shape)


def _permute(net: _Net) -> None:
    net.x = net.x.dimshuffle(0, 2, 1)
    net.shape = net.shape[::-1]


def _conv1d(net: _Net) -> None:
    size, filters = net.rng.choice((1, 2, 3)), net.rng.randint(2, 5)
    mode, stride = net.rng.choice((("valid", 1), ("half", 1), ("valid", 2)))
    if net.shape[0] < size + 1 or (size == 2 and mode == "half"):
        return
    x = net.x.dimshuffle((0, 1, "x", 2)).dimshuffle((0, 3, 1, 2))
    kernel = net.weight(size, net.shape[1], filters).dimshuffle((0, "x", 1, 2)).dimshuffle((3, 2, 0, 1))
    shapes = {"input_shape": (None, net.shape[1], net.shape[0], 1), "filter_shape": (filters, net.shape[1], size, 1)}
    out = tt.nnet.conv2d(
        x, kernel, border_mode=mode, subsample=(stride, 1), filter_flip=net.rng.random() < 0.5, **shapes
    )
    out = _squeezed(out.dimshuffle((0, 2, 3, 1)), 2)
    net.x = net.activated(out + net.weight(filters).dimshuffle("x", "x", 0))
    net.shape = (net.shape[0] if mode == "half" else (net.shape[0] - size) // stride + 1, filters)


def _pool1d(net: _Net) -> None:
    size = net.rng.choice((2, 3))
    if net.shape[0] < size:
        return
    mode = net.rng.choice(("max", "average_exc_pad"))
    x = net.x.dimshuffle((0, 1, "x", 2)).dimshuffle((0, 3, 1, 2))
    out = pool_2d(x, ws=(size, 1), stride=(size, 1), ignore_border=True, pad=(0, 0), mode=mode)
    net.x = _squeezed(out.dimshuffle((0, 2, 3, 1)), 2)
    net.shape = (net.shape[0] // size, net.shape[1])


def _global_pool(net: _Net) -> None:
    net.x = net.rng.choice((tt.mean, tt.max))(net.x, axis=tuple(range(1, net.x.ndim - 1)))
    net.shape = net.shape[-1:]


def _conv2d(net: _Net) -> None:
    filters, mode = net.rng.randint(2, 4), net.rng.choice(("valid", "half"))
    if net.shape[0] < 4:
        return
    kernel = net.weight(3, 3, net.shape[2], filters).dimshuffle((3, 2, 0, 1))
    shape = (None, net.shape[2], *net.shape[:2])
    out = tt.nnet.conv2d(net.x.dimshuffle((0, 3, 1, 2)), kernel, border_mode=mode, input_shape=shape)
    net.x = net.activated(out.dimshuffle((0, 2, 3, 1)) + net.weight(filters).dimshuffle("x", "x", "x", 0))
    net.shape = (*(n if mode == "half" else n - 2 for n in net.shape[:2]), filters)


def _pool2d(net: _Net) -> None:
    if net.shape[0] < 2:
        return
    out = pool_2d(net.x.dimshuffle((0, 3, 1, 2)), ws=(2, 2), ignore_border=True, mode=net.rng.choice(("max", "sum")))
    net.x = out.dimshuffle((0, 2, 3, 1))
    net.shape = (net.shape[0] // 2, net.shape[1] // 2, net.shape[2])


def _rows_of_image(net: _Net) -> None:
    net.x = net.x.reshape((net.x.shape[0], net.shape[0], net.shape[1] * net.shape[2]))
    net.shape = (net.shape[0], net.shape[1] * net.shape[2])


def _recurrent(net: _Net) -> None:
    """Apply an LSTM, a GRU or a simple recurrent layer, built with scan; it returns its last state or all states."""
    units, kind = net.rng.randint(2, 4), net.rng.choice(("lstm", "gru", "simple"))
    net.words.append(kind)
    gates = {"lstm": 4, "gru": 3, "simple": 1}[kind]
    w, u = net.weight(net.shape[1], gates * units), net.weight(units, gates * units)
    b = net.weight(gates * units)
    sequence = net.x.dimshuffle((1, 0, 2))
    zeros = tt.unbroadcast(tt.zeros_like(net.x).sum(axis=(1, 2)).dimshuffle(0, "x").repeat(units, axis=1), 1)
    inner = tt.nnet.hard_sigmoid if net.rng.random() < 0.5 else tt.nnet.sigmoid

    def part(z: Any, number: int) -> Any:
        return z[:, number * units : (number + 1) * units]

    def lstm(x: Any, h: Any, c: Any) -> list[Any]:
        z = tt.dot(x, w) + tt.dot(h, u) + b
        c = inner(part(z, 1)) * c + inner(part(z, 0)) * tt.tanh(part(z, 2))
        return [inner(part(z, 3)) * tt.tanh(c), c]

    def gru(x: Any, h: Any) -> Any:
        z, r = tt.dot(x, w) + b, tt.dot(h, u[:, : 2 * units])
        update, reset = inner(part(z, 0) + part(r, 0)), inner(part(z, 1) + part(r, 1))
        return update * h + (1 - update) * tt.tanh(part(z, 2) + tt.dot(reset * h, u[:, 2 * units :]))

    def simple(x: Any, h: Any) -> Any:
        return tt.tanh(tt.dot(x, w) + b + tt.dot(h, u))

    step, states = {"lstm": (lstm, 2), "gru": (gru, 1), "simple": (simple, 1)}[kind]
    backwards = net.rng.random() < 0.2
    found, _ = theano.scan(step, sequence, [zeros] * states, go_backwards=backwards)
    outputs = (found if isinstance(found, list) else [found])[0]
    if net.rng.random() < 0.5:
        net.x, net.shape = outputs[-1], (units,)
    else:
        net.x, net.shape = outputs.dimshuffle((1, 0, 2)), (net.shape[0], units)


_ANY = [_dense, _dense, _dropout, _noise, _activation, _residual, _joined, _normalized, _layer_normalized]
#: The layers to choose from, by the number of axes after the batch axis.
_LAYERS: dict[int, list[Callable[[_Net], None]]] = {
    1: [*_ANY, _repeat],
    2: [*_ANY, *[_conv1d] * 2, *[_pool1d] * 2, *[_recurrent] * 3, _permute, _flatten, _global_pool],
    3: [*_ANY, *[_conv2d] * 3, *[_pool2d] * 3, _flatten, _global_pool, _rows_of_image],
}

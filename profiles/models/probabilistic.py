"""Models from statistics: a variational autoencoder, a hierarchical mixture and a Gaussian process.

The mixture and the process are built as in PyMC3: one flat vector holds all free parameters. Each parameter is a slice
of the vector, transformed to its support. The function returns the joint log density and its gradient.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import theano
import theano.tensor as tt
from theano.sandbox.rng_mrg import MRG_RandomStreams
from theano.tensor.slinalg import cholesky, solve_lower_triangular
from theano.tensor.var import TensorVariable

from profiles.models import parts
from profiles.models.base import Model, register


@register("vae", hidden=2)
def vae(name: str, hidden: int, width: int = 16, latent: int = 4, batch: int = 8, pixels: int = 24) -> Model:
    """A training step, with Adam, of a variational autoencoder; encoder and decoder have `hidden` layers."""
    rng = np.random.RandomState(8)
    random = MRG_RandomStreams(4321)
    x = tt.matrix("x")
    parameters = []

    def dense(y: TensorVariable, before: int, after: int) -> TensorVariable:
        matrix, bias = parts.weights(rng, before, after), parts.constant(0.0, after)
        parameters.extend([matrix, bias])
        return y.dot(matrix) + bias

    def stack(y: TensorVariable, before: int) -> TensorVariable:
        for _ in range(hidden):
            y, before = tt.tanh(dense(y, before, width)), width
        return y

    code = stack(x, pixels)
    mean, log_variance = dense(code, width, latent), dense(code, width, latent)
    noise = random.normal(size=(x.shape[0], latent), dtype=theano.config.floatX)
    picture = tt.nnet.sigmoid(dense(stack(mean + tt.exp(log_variance / 2) * noise, latent), width, pixels))

    reconstruction = tt.nnet.binary_crossentropy(picture, x).sum(axis=1).mean()
    divergence = -0.5 * (1 + log_variance - tt.sqr(mean) - tt.exp(log_variance)).sum(axis=1).mean()
    updates = parts.adam(reconstruction + divergence, parameters)
    return Model(name, [x], [reconstruction, divergence], updates, [parts.floats(rng.uniform(size=(batch, pixels)))])


class Point:
    """The vector of all free parameters; `take` returns its next slice."""

    def __init__(self) -> None:
        self.vector = tt.vector("point")
        self.size = 0

    def take(self, length: int) -> TensorVariable:
        """Return the next `length` numbers."""
        start, self.size = self.size, self.size + length
        return self.vector[start : self.size].reshape((length,))


def _bounded(density: TensorVariable, *conditions: TensorVariable) -> TensorVariable:
    """Return the density, or minus infinity if a condition does not hold, as PyMC3's distributions do."""
    holds = tt.constant(1, dtype="int8")
    for condition in conditions:
        holds = holds * tt.all(condition)
    return tt.switch(holds, density, -np.inf)


def _constant(value: float) -> TensorVariable:
    """Return a constant of floatX; Theano would convert 0.5 to float32, and compute its logarithm inexactly."""
    return tt.constant(parts.floats(value))


def _normal(x: TensorVariable, mean: TensorVariable, deviation: TensorVariable) -> TensorVariable:
    precision = 1.0 / tt.sqr(deviation)
    density = (-precision * tt.sqr(x - mean) + tt.log(precision / (2 * np.pi))) / 2
    return _bounded(density, tt.gt(deviation, 0))


def _gamma(x: TensorVariable, shape: TensorVariable, rate: TensorVariable) -> TensorVariable:
    density = -tt.gammaln(shape) + shape * tt.log(rate) - rate * x + (shape - 1) * tt.log(x)
    return _bounded(density, tt.gt(x, 0), tt.gt(shape, 0), tt.gt(rate, 0))


def _dirichlet(x: TensorVariable, concentration: TensorVariable) -> TensorVariable:
    density = ((concentration - 1) * tt.log(x) - tt.gammaln(concentration)).sum() + tt.gammaln(concentration.sum())
    return _bounded(density, tt.ge(x, 0), tt.le(x, 1), tt.gt(concentration, 0))


def _log_sum_exp(x: TensorVariable, axis: int) -> TensorVariable:
    largest = tt.max(x, axis=axis, keepdims=True)
    return tt.log(tt.sum(tt.exp(x - largest), axis=axis, keepdims=True)) + largest


def _positive(free: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Return the exponential transform of a variable, and the logarithm of the transform's Jacobian."""
    return tt.exp(free), free.sum()


def _simplex(free: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Return the softmax transform with a last score of zero, and the logarithm of the transform's Jacobian."""
    scores = tt.concatenate([free, tt.zeros((1,), dtype=theano.config.floatX)])
    log_weights = scores - _log_sum_exp(scores, 0)
    return tt.exp(log_weights), log_weights.sum()


def _density_and_gradient(
    name: str, point: Point, terms: list[TensorVariable], data: list, inputs: list, start: Callable
) -> Model:
    total = tt.add(*[term.sum() for term in terms])
    gradient = tt.grad(total, point.vector)
    return Model(
        name, [point.vector, *inputs], [total, gradient], OrderedDict(), [parts.floats(start(point.size)), *data]
    )


@register("mixture", groups=15)
def mixture(name: str, groups: int, components: int = 3, members: int = 20) -> Model:
    """The log density and the gradient of Gaussian mixtures, one for each group; the mixtures have common priors."""
    rng = np.random.RandomState(9)
    point = Point()
    observed = tt.matrix("observed")

    center = point.take(components)
    spread, spread_jacobian = _positive(point.take(components))
    shape, shape_jacobian = _positive(point.take(1))
    rate, rate_jacobian = _positive(point.take(1))
    strength, strength_jacobian = _positive(point.take(components))
    terms = [
        _normal(center, _constant(0.0), _constant(10.0)),
        _gamma(spread, _constant(2.0), _constant(1.0)) + spread_jacobian,
        _gamma(shape, _constant(2.0), _constant(0.5)) + shape_jacobian,
        _gamma(rate, _constant(2.0), _constant(0.5)) + rate_jacobian,
        _gamma(strength, _constant(2.0), _constant(1.0)) + strength_jacobian,
    ]
    for group in range(groups):
        share, share_jacobian = _simplex(point.take(components - 1))
        mean = center + spread * point.take(components)
        precision, precision_jacobian = _positive(point.take(components))
        x = observed[group].dimshuffle(0, "x")
        each = tt.log(share) + _normal(x, mean, 1 / tt.sqrt(precision))
        terms += [
            _dirichlet(share, strength) + share_jacobian,
            _normal(mean, center, spread),
            _gamma(precision, shape, rate) + precision_jacobian,
            _log_sum_exp(each, 1),
        ]
    data = [parts.floats(rng.standard_normal((groups, members)))]
    return _density_and_gradient(name, point, terms, data, [observed], lambda size: 0.3 * rng.standard_normal(size))


@register("gp", dimensions=2)
def gp(name: str, dimensions: int, members: int = 12) -> Model:
    """The log density and the gradient of a Gaussian process with a squared exponential kernel and priors."""
    rng = np.random.RandomState(10)
    point = Point()
    x, y = tt.matrix("x"), tt.vector("y")
    length, length_jacobian = _positive(point.take(dimensions))
    signal, signal_jacobian = _positive(point.take(1))
    noise, noise_jacobian = _positive(point.take(1))

    scaled = x / length
    squares = tt.sqr(scaled).sum(axis=1)
    distances = tt.clip(squares.dimshuffle(0, "x") + squares.dimshuffle("x", 0) - 2 * scaled.dot(scaled.T), 0, np.inf)
    covariance = tt.sqr(signal) * tt.exp(-distances / 2) + tt.eye(x.shape[0]) * (tt.sqr(noise) + 1e-6)
    factor = cholesky(covariance)
    whitened = solve_lower_triangular(factor, y)
    likelihood = -0.5 * whitened.dot(whitened) - tt.log(tt.diag(factor)).sum() - 0.5 * np.log(2 * np.pi) * y.size

    terms = [
        likelihood,
        _gamma(length, _constant(2.0), _constant(1.0)) + length_jacobian,
        _gamma(signal, _constant(2.0), _constant(1.0)) + signal_jacobian,
        _gamma(noise, _constant(1.5), _constant(2.0)) + noise_jacobian,
    ]
    data = [parts.floats(rng.standard_normal((members, dimensions))), parts.floats(rng.standard_normal(members))]
    return _density_and_gradient(name, point, terms, data, [x, y], lambda size: 0.1 * rng.standard_normal(size))

"""Random log densities with their gradients, written in Theano as PyMC3 3.9 does.

One vector holds the free variables. Each variable is a slice of the vector, transformed to the support of its
distribution. The parameters of its distribution are numbers, or values of earlier variables. Some variables are
observed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import theano
import theano.tensor as tt

from fuzzing.quality.drawn import Drawn

__all__ = ["draw"]

COUNT = 6
"""How many observations there are."""


def draw(seed: int) -> Drawn:
    """Draw a log density from a seed; equal seeds give equal densities."""
    return _Model(random.Random(f"density {seed}")).drawn()


class _Model:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.numbers = np.random.RandomState(rng.randrange(2**31))
        self.flat = tt.vector("flat")
        self.size = 0
        self.real: list[Any] = []
        self.positive: list[Any] = []
        self.unit: list[Any] = []
        self.terms: list[Any] = []
        self.words: list[str] = []

    def drawn(self) -> Drawn:
        for _ in range(self.rng.randint(1, 4)):
            self._free()
        for _ in range(self.rng.randint(1, 2)):
            self._observed()
        total = tt.sum([tt.sum(term) for term in self.terms])
        outputs = [total, theano.grad(total, self.flat)] if self.rng.random() < 0.85 else [total]
        return Drawn(" ".join(self.words), [self.flat], outputs)

    def _slice(self, shape: tuple[int, ...]) -> Any:
        begin, self.size = self.size, self.size + int(np.prod(shape))
        return self.flat[begin : self.size].reshape(shape).astype(theano.config.floatX)

    def _free(self) -> None:
        shape = self.rng.choice(((), (), (3,), (COUNT,)))
        raw, name = self._slice(shape), self.rng.choice(list(_FREE))
        _FREE[name](self, raw)
        self.words.append(f"{name}{list(shape)}")

    def _observed(self) -> None:
        name = self.rng.choice(list(_OBSERVED))
        _OBSERVED[name](self)
        self.words.append(f"observed {name}")

    def a_real(self) -> Any:
        x = self._one(self.real, lambda: self.rng.choice((0.0, 1.0, -2.5)))
        if self.real and self.rng.random() < 0.4:
            data = tt.constant(self.numbers.standard_normal(COUNT).astype(theano.config.floatX))
            x = self._first(x) + self._first(self.rng.choice(self.real)) * data
        return x

    def a_positive(self) -> Any:
        return self._one(self.positive, lambda: self.rng.choice((1.0, 2.0, 0.5)))

    def a_unit(self) -> Any:
        if self.real and self.rng.random() < 0.4:
            return tt.nnet.sigmoid(self.a_real())
        return self._one(self.unit, lambda: self.rng.choice((0.5, 0.2)))

    def _one(self, values: list[Any], number: Callable[[], float]) -> Any:
        if values and self.rng.random() < 0.7:
            return self.rng.choice(values)
        return tt.as_tensor_variable(np.asarray(number(), theano.config.floatX))

    @staticmethod
    def _first(x: Any) -> Any:
        """Return a scalar element of a value; scalars broadcast with any other value."""
        return x[0] if getattr(x, "ndim", 0) else x

    def aligned(self, *values: Any) -> list[Any]:
        """Return values that broadcast with each other: replace all vectors except the first value by scalars."""
        return [values[0], *(self._first(value) for value in values[1:])]

    def data(self, low: float, high: float, whole: bool = False) -> Any:
        if whole:
            return tt.constant(self.numbers.randint(int(low), int(high), COUNT).astype("int64"))
        return tt.constant(self.numbers.uniform(low, high, COUNT).astype(theano.config.floatX))


def _bound(density: Any, *conditions: Any) -> Any:
    """Return a density that is -inf if a condition does not hold, like PyMC3's ``bound``."""
    if not conditions:
        return density
    all_true = tt.all([tt.all(1 * condition) for condition in conditions])
    return tt.switch(all_true, density, -np.inf)


def _normal(value: Any, mu: Any, sigma: Any) -> Any:
    tau = tt.as_tensor_variable(sigma) ** -2.0
    return _bound((-tau * (value - mu) ** 2 + tt.log(tau / np.pi / 2.0)) / 2.0, sigma > 0)


def _student(value: Any, nu: Any, mu: Any, sigma: Any) -> Any:
    lam = sigma**-2.0
    density = tt.gammaln((nu + 1.0) / 2.0) + 0.5 * tt.log(lam / (nu * np.pi)) - tt.gammaln(nu / 2.0)
    return _bound(density - (nu + 1.0) / 2.0 * tt.log1p(lam * (value - mu) ** 2 / nu), lam > 0, nu > 0, sigma > 0)


def _gamma(value: Any, alpha: Any, beta: Any) -> Any:
    density = -tt.gammaln(alpha) + _logpow(beta, alpha) - beta * value + _logpow(value, alpha - 1)
    return _bound(density, value >= 0, alpha > 0, beta > 0)


def _beta(value: Any, alpha: Any, beta: Any) -> Any:
    log_beta = tt.gammaln(alpha) + tt.gammaln(beta) - tt.gammaln(alpha + beta)
    density = tt.switch(tt.eq(alpha, 1), 0, (alpha - 1) * tt.log(value))
    density += tt.switch(tt.eq(beta, 1), 0, (beta - 1) * tt.log1p(-value)) - log_beta
    return _bound(density, value >= 0, value <= 1, alpha > 0, beta > 0)


def _logpow(x: Any, m: Any) -> Any:
    return tt.switch(tt.eq(x, 0), tt.switch(tt.eq(m, 0), 0.0, -np.inf), m * tt.log(x))


def _free_normal(model: _Model, raw: Any) -> None:
    value, mu, sigma = model.aligned(raw, model.a_real(), model.a_positive())
    model.terms.append(_normal(value, mu, sigma))
    model.real.append(value)


def _free_positive(density: Callable[[_Model, Any], Any]) -> Callable[[_Model, Any], None]:
    def free(model: _Model, raw: Any) -> None:
        value = tt.exp(raw)
        model.terms.append(density(model, value) + raw)
        model.positive.append(value)

    return free


def _half_normal(model: _Model, value: Any) -> Any:
    tau = model._first(model.a_positive()) ** -2.0
    return _bound(-0.5 * tau * value**2 + 0.5 * tt.log(tau * 2.0 / np.pi), value >= 0, tau > 0)


def _half_cauchy(model: _Model, value: Any) -> Any:
    beta = model._first(model.a_positive())
    return _bound(tt.log(2) - tt.log(np.pi) - tt.log(beta) - tt.log1p((value / beta) ** 2), value >= 0, beta > 0)


def _exponential(model: _Model, value: Any) -> Any:
    lam = model._first(model.a_positive())
    return _bound(tt.log(lam) - lam * value, value >= 0, lam > 0)


def _free_gamma(model: _Model, value: Any) -> Any:
    return _gamma(*model.aligned(value, model.a_positive(), model.a_positive()))


def _free_beta(model: _Model, raw: Any) -> None:
    value = tt.nnet.sigmoid(raw)
    alpha, beta = model._first(model.a_positive()), model._first(model.a_positive())
    model.terms.append(_beta(value, alpha, beta) + tt.log(value) + tt.log1p(-value))
    model.unit.append(value)


def _free_uniform(model: _Model, raw: Any) -> None:
    low, high = -1.0, 3.0
    s = tt.nnet.sigmoid(raw)
    value = s * high + (1 - s) * low
    density = _bound(-tt.log(high - low) + tt.zeros_like(value), value >= low, value <= high)
    model.terms.append(density + tt.log(high - low) - 2 * tt.nnet.softplus(-raw) - raw)
    model.real.append(value)


def _free_simplex(model: _Model, raw: Any) -> None:
    """Add a Dirichlet variable in stick-breaking coordinates, and use it as the weights of a mixture."""
    if not raw.ndim:
        _free_normal(model, raw)
        return
    logits = tt.concatenate([raw, -tt.sum(raw, 0, keepdims=True)])
    weights = tt.exp(logits - tt.max(logits, 0, keepdims=True))
    weights = weights / tt.sum(weights, 0, keepdims=True)
    alpha = tt.as_tensor_variable(np.ones(1))
    density = tt.sum(_logpow(weights, alpha - 1) - tt.gammaln(alpha), axis=-1) + tt.gammaln(alpha.sum())
    model.terms.append(_bound(density, tt.all(weights >= 0), tt.all(weights <= 1), tt.all(alpha > 0)))
    means = tt.as_tensor_variable(np.linspace(-1, 1, 2)).astype(theano.config.floatX)
    parts = tt.log(weights[:2]) + _normal(model.data(-2, 2).dimshuffle(0, "x"), means, model._first(model.a_positive()))
    largest = tt.max(parts, axis=-1, keepdims=True)
    model.terms.append(tt.log(tt.sum(tt.exp(parts - largest), axis=-1, keepdims=True)) + largest)


_FREE: dict[str, Callable[[_Model, Any], None]] = {
    "normal": _free_normal,
    "half normal": _free_positive(_half_normal),
    "half cauchy": _free_positive(_half_cauchy),
    "exponential": _free_positive(_exponential),
    "gamma": _free_positive(_free_gamma),
    "beta": _free_beta,
    "uniform": _free_uniform,
    "simplex": _free_simplex,
}


def _vector(model: _Model, x: Any) -> Any:
    """Return a scalar parameter for all observations: the value itself, or the first element of a vector."""
    return x if getattr(x, "ndim", 0) == 0 else model._first(x)


def _observed_normal(model: _Model) -> None:
    model.terms.append(_normal(model.data(-2, 2), _vector(model, model.a_real()), _vector(model, model.a_positive())))


def _observed_student(model: _Model) -> None:
    mu, sigma, nu = (_vector(model, x) for x in (model.a_real(), model.a_positive(), model.a_positive()))
    model.terms.append(_student(model.data(-2, 2), nu, mu, sigma))


def _observed_bernoulli(model: _Model) -> None:
    value, p = model.data(0, 2, True), _vector(model, model.a_unit())
    density = tt.switch(value, tt.log(p), tt.log(1 - p))
    model.terms.append(_bound(density, value >= 0, value <= 1, p >= 0, p <= 1))


def _observed_poisson(model: _Model) -> None:
    value, mu = model.data(0, 5, True), _vector(model, model.a_positive())
    density = _bound(_logpow(mu, value) - tt.gammaln(value + 1) - mu, mu >= 0, value >= 0)
    model.terms.append(tt.switch(tt.eq(mu, 0) * tt.eq(value, 0), 0, density))


def _observed_gamma(model: _Model) -> None:
    model.terms.append(_gamma(model.data(0.1, 3), *(_vector(model, model.a_positive()) for _ in "ab")))


def _observed_beta(model: _Model) -> None:
    model.terms.append(_beta(model.data(0.1, 0.9), *(_vector(model, model.a_positive()) for _ in "ab")))


def _observed_regression(model: _Model) -> None:
    table = tt.constant(model.numbers.standard_normal((COUNT, 3)).astype(theano.config.floatX))
    weights = model._slice((3,))
    model.terms.append(_normal(weights, 0.0, 10.0))
    mu = tt.dot(table, weights) + _vector(model, model.a_real())
    link = model.rng.choice((lambda x: x, tt.tanh, lambda x: tt.nnet.sigmoid(x) * 2, lambda x: tt.exp(x) / (1 + x**2)))
    model.terms.append(_normal(model.data(-2, 2), link(mu), _vector(model, model.a_positive())))


def _observed_walk(model: _Model) -> None:
    """Add a Gaussian random walk and its observations."""
    walk = model._slice((COUNT,))
    sigma = _vector(model, model.a_positive())
    model.terms += [_normal(walk[0], 0.0, 1.0), _normal(walk[1:], walk[:-1], sigma)]
    model.terms.append(_normal(model.data(-2, 2), walk, _vector(model, model.a_positive())))


def _observed_groups(model: _Model) -> None:
    """Add a variable with a value for each group, and observations that depend on the values of their groups."""
    groups = model._slice((3,))
    mu, sigma = _vector(model, model.a_real()), _vector(model, model.a_positive())
    model.terms.append(_normal(groups, mu, sigma))
    index = tt.constant(model.numbers.randint(0, 3, COUNT))
    model.terms.append(_normal(model.data(-2, 2), groups[index], sigma))


_OBSERVED: dict[str, Callable[[_Model], None]] = {
    "normal": _observed_normal,
    "student": _observed_student,
    "bernoulli": _observed_bernoulli,
    "poisson": _observed_poisson,
    "gamma": _observed_gamma,
    "beta": _observed_beta,
    "regression": _observed_regression,
    "random walk": _observed_walk,
    "groups": _observed_groups,
}

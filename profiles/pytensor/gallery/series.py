"""Models of time series with recurrences, hidden states, differential equations or change points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt


def garch() -> pm.Model:
    """Build a model with PyMC's own GARCH(1, 1) distribution."""
    rng = np.random.default_rng(61)
    with pm.Model() as model:
        omega, alpha = pm.HalfNormal("omega", 1), pm.Uniform("alpha", 0, 0.5)
        beta = pm.Uniform("beta", 0, 0.5)
        pm.GARCH11("y", omega=omega, alpha_1=alpha, beta_1=beta, initial_vol=1.0, observed=rng.normal(size=200))
    return model


def garch_by_scan() -> pm.Model:
    """Build a GARCH model whose recurrence is a scan and whose log density is a potential."""
    rng = np.random.default_rng(62)
    y = rng.normal(size=200)
    with pm.Model() as model:
        omega, alpha = pm.HalfNormal("omega", 1), pm.Uniform("alpha", 0, 0.5)
        beta = pm.Uniform("beta", 0, 0.5)
        variance = pytensor.scan(
            lambda y, h, omega, alpha, beta: omega + alpha * y**2 + beta * h,
            sequences=[pt.as_tensor(y)],
            outputs_info=[pt.ones(())],
            non_sequences=[omega, alpha, beta],
            return_updates=False,
        )
        pm.Potential("y", (-0.5 * (pt.log(variance[:-1]) + y[1:] ** 2 / variance[:-1])).sum())
    return model


def hidden_markov() -> pm.Model:
    """Build a hidden Markov model whose states are marginalized by a scan."""
    rng = np.random.default_rng(63)
    state = np.cumsum(rng.random(100) < 0.1) % 2
    y = rng.normal(np.array([-1.0, 1.5])[state], 0.7)
    with pm.Model() as model:
        stay = pm.Beta("stay", 5, 1, shape=2)
        centers = pm.Normal("centers", np.array([-1.0, 1.0]), 1, shape=2)
        log_moves = pt.log(pt.stack([pt.stack([stay[0], 1 - stay[0]]), pt.stack([1 - stay[1], stay[1]])]))
        emitted = pm.logp(pm.Normal.dist(centers, 0.7), y[:, None])
        last = pytensor.scan(
            lambda emitted, before, moves: pt.logsumexp(before[:, None] + moves, axis=0) + emitted,
            sequences=[emitted[1:]],
            outputs_info=[emitted[0] + np.log(0.5)],
            non_sequences=[log_moves],
            return_updates=False,
        )[-1]
        pm.Potential("y", pt.logsumexp(last))
    return model


def hidden_markov_unrolled() -> pm.Model:
    """Build a hidden Markov model whose ten steps are unrolled."""
    rng = np.random.default_rng(64)
    y = rng.normal(size=(10, 30))
    with pm.Model() as model:
        stay = pm.Beta("stay", 5, 1)
        centers = pm.Normal("centers", np.array([-1.0, 1.0]), 1, shape=2)
        log_moves = pt.log(pt.stack([pt.stack([stay, 1 - stay]), pt.stack([1 - stay, stay])]))
        alpha = pm.logp(pm.Normal.dist(centers, 1.0), y[0][:, None])
        for step in y[1:]:
            emitted = pm.logp(pm.Normal.dist(centers, 1.0), step[:, None])
            alpha = pt.logsumexp(alpha[:, :, None] + log_moves, axis=1) + emitted
        pm.Potential("y", pt.logsumexp(alpha, axis=1).sum())
    return model


def _predators(state: pt.TensorVariable, rates: pt.TensorVariable) -> pt.TensorVariable:
    prey, predator = state[0], state[1]
    return pt.stack([rates[0] * prey - rates[1] * prey * predator, rates[2] * prey * predator - rates[3] * predator])


def _step(state: pt.TensorVariable, rates: pt.TensorVariable, h: float = 0.1) -> pt.TensorVariable:
    """Return the state after a step of the Runge-Kutta method."""
    first = _predators(state, rates)
    second = _predators(state + h / 2 * first, rates)
    third = _predators(state + h / 2 * second, rates)
    return state + h / 6 * (first + 2 * second + 2 * third + _predators(state + h * third, rates))


def ode_unrolled() -> pm.Model:
    """Build a predator-prey model with unrolled steps."""
    rng = np.random.default_rng(65)
    with pm.Model() as model:
        rates = pm.LogNormal("rates", np.log([0.6, 0.3, 0.3, 0.6]), 0.3, shape=4)
        states = [pt.as_tensor(np.array([2.0, 1.0]))]
        for _ in range(5):
            states.append(_step(states[-1], rates))
        pm.LogNormal("y", pt.log(pt.stack(states[1:])), 0.2, observed=rng.lognormal(0.5, 0.2, (5, 2)))
    return model


def ode_by_scan() -> pm.Model:
    """Build a predator-prey model with a scan."""
    rng = np.random.default_rng(66)
    with pm.Model() as model:
        rates = pm.LogNormal("rates", np.log([0.6, 0.3, 0.3, 0.6]), 0.3, shape=4)
        states = pytensor.scan(
            _step,
            outputs_info=[pt.as_tensor(np.array([2.0, 1.0]))],
            non_sequences=[rates],
            n_steps=60,
            return_updates=False,
        )
        pm.LogNormal("y", pt.log(states), 0.2, observed=rng.lognormal(0.5, 0.2, (60, 2)))
    return model


def kalman() -> pm.Model:
    """Build a local level model whose states are integrated out by a Kalman filter."""
    rng = np.random.default_rng(67)
    y = np.cumsum(rng.normal(size=120)) + rng.normal(size=120)
    with pm.Model() as model:
        spread = pm.HalfNormal("spread", 1, shape=2)

        def step(y: Any, mean: Any, variance: Any, spread: Any) -> tuple[Any, ...]:
            variance = variance + spread[0] ** 2
            total = variance + spread[1] ** 2
            gain = variance / total
            density = -0.5 * (pt.log(total) + (y - mean) ** 2 / total)
            return mean + gain * (y - mean), variance * (1 - gain), density

        _, _, densities = pytensor.scan(
            step,
            sequences=[pt.as_tensor(y)],
            outputs_info=[pt.zeros(()), pt.as_tensor(np.asarray(10.0)), None],
            non_sequences=[spread],
            return_updates=False,
        )
        pm.Potential("y", densities.sum())
    return model


def random_walk() -> pm.Model:
    """Build a model of a smooth trend that is a random walk."""
    rng = np.random.default_rng(68)
    with pm.Model() as model:
        step = pm.HalfNormal("step", 1)
        trend = pm.GaussianRandomWalk("trend", mu=0, sigma=step, init_dist=pm.Normal.dist(0, 1), shape=150)
        pm.Normal("y", trend, pm.HalfNormal("noise", 1), observed=np.cumsum(rng.normal(size=150)))
    return model


def change_point() -> pm.Model:
    """Build a model of yearly counts whose rate changes in an unknown year."""
    rng = np.random.default_rng(69)
    y = np.concatenate([rng.poisson(3.0, 40), rng.poisson(1.0, 70)])
    with pm.Model() as model:
        year = pm.Uniform("year", 0, 110)
        rates = pm.Exponential("rates", 1, shape=2)
        early = pm.math.sigmoid(year - np.arange(110))
        pm.Poisson("y", rates[0] * early + rates[1] * (1 - early), observed=y)
    return model


def latent_autoregression() -> pm.Model:
    """Build a model of counts whose logarithmic rate is an autoregression."""
    rng = np.random.default_rng(70)
    with pm.Model() as model:
        weight = pm.Uniform("weight", -1, 1)
        log_rate = pm.AR("log_rate", [0.1, weight], sigma=0.5, constant=True, init_dist=pm.Normal.dist(0, 1), steps=99)
        pm.Poisson("y", pt.exp(log_rate), observed=rng.poisson(2.0, 100))
    return model

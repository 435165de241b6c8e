"""Kernels of loops that are unrolled in Python compute each scalar once, however many elements depend on it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.scalar.basic import Composite

import optdb.pytensor
from optdb.device.schedule import elementwise
from optdb.runtime.device_profiles import DEVICE_KINDS
from tests.pytensor.comparing import compare, mode_of_kind


def _garch(steps: int) -> tuple[list[Any], list[Any]]:
    """Return the inputs of a GARCH(1, 1) process, and its log density with gradients."""
    y, point = pt.vector("y", dtype="float64", shape=(steps,)), pt.vector("point", dtype="float64", shape=(3,))
    omega, alpha, beta = pt.exp(point[0]), pt.sigmoid(point[1]), pt.sigmoid(point[2])
    variances = [omega / (3.5 - alpha - beta)]
    for t in range(steps - 1):
        variances.append(omega + alpha * y[t] ** 2 + beta * variances[-1])
    variance = pt.stack(variances)
    logp = (-0.5 * pt.log(variance) - 0.5 * y**2 / variance).sum()
    return [y, point], [logp, *pt.grad(logp, [y, point]), variance]


def _level(steps: int) -> tuple[list[Any], list[Any]]:
    """Return the inputs of a local level with jumps, and its log density with gradients."""
    x, noise = pt.vector("x", dtype="float64", shape=(steps,)), pt.scalar("noise", dtype="float64")
    level, logp, jumps = pt.as_tensor(0.0), pt.as_tensor(0.0), pt.as_tensor(np.int64(0))
    for t in range(steps):
        logp = logp - 0.5 * ((x[t] - level) / pt.exp(noise)) ** 2 - noise
        is_jump = pt.gt(abs(x[t] - level), 0.5)
        jumps = jumps + pt.cast(is_jump, "int64")
        level = pt.switch(is_jump, x[t], pt.tanh(level + 0.3 * x[t]))
    return [x, noise], [logp, *pt.grad(logp, [x, noise]), jumps]


_MODELS = {"garch": _garch, "level": _level}


def _arguments(inputs: list[Any]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [0.5 * rng.normal(size=var.type.shape) for var in inputs]


def _scalars_of_kernels(device: Any) -> int:
    return sum(map(int, re.findall(r"(\d+) scalars a point", optdb.pytensor.explain(device))))


def _scalars_of_graph(device: Any) -> int:
    ops = [getattr(node.op, "scalar_op", node.op) for node in device.maker.fgraph.apply_nodes]
    return sum(len(op.fgraph.apply_nodes) if isinstance(op, Composite) else 1 for op in ops)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [12, 40])
@pytest.mark.parametrize("name", _MODELS)
def test_kernels_compute_each_scalar_once(name, steps):
    inputs, outputs = _MODELS[name](steps)
    device = compare(inputs, outputs, _arguments(inputs))
    assert 0 < _scalars_of_kernels(device) <= 2 * _scalars_of_graph(device)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DEVICE_KINDS)
@pytest.mark.parametrize("name", _MODELS)
def test_large_bodies_are_divided_into_kernels(name, kind):
    inputs, outputs = _MODELS[name](6)
    device = compare(inputs, outputs, _arguments(inputs), mode=mode_of_kind(kind, loop_steps=20))
    assert _scalars_of_kernels(device) <= 2 * _scalars_of_graph(device)
    assert optdb.pytensor.explain(device).count("a loop over 1 points") > 2


def _network(steps: int) -> tuple[list[Any], list[Any]]:
    """Return the inputs of a recurrent network, and its loss with gradients."""
    x, w = pt.tensor3("x", dtype="float64", shape=(steps, 20, 24)), pt.matrix("w", dtype="float64", shape=(24, 24))
    hidden, sums = pt.zeros((20, 24)), []
    for t in range(steps):
        gate = pt.sigmoid(hidden @ w + x[t])
        hidden = (1 - gate) * hidden + gate * pt.tanh((gate * hidden) @ w - x[t])
        sums.append((hidden * gate).sum(axis=0))
    loss = (hidden**2).sum() + pt.stack(sums).mean()
    return [x, w], [loss, *pt.grad(loss, [x, w]), hidden, pt.concatenate([hidden, hidden.T[:20, :20] + 1], axis=1)]


@pytest.mark.parametrize("kind", DEVICE_KINDS)
def test_kernels_load_what_earlier_kernels_compute(kind):
    counts = []
    for steps in (6, 12):
        inputs, outputs = _network(steps)
        for least in (3, 40):
            device = compare(inputs, outputs, _arguments(inputs), mode=mode_of_kind(kind, least_shared_steps=least))
            counts.append(_scalars_of_kernels(device))
    # The number grows with the number of steps, not with its square.
    assert counts[2] < 2.5 * counts[0] and counts[3] < 2.5 * counts[1]


@pytest.mark.slow
def test_replaced_elements_are_stored_by_one_kernel():
    x = pt.vector("x", dtype="float64", shape=(40,))
    y = x
    for t in range(0, 39, 3):
        y = y[t].set(pt.exp(x[t + 1]))
    device = compare([x], y, [np.linspace(-1, 1, 40)])
    assert optdb.pytensor.explain(device).count("a loop over") == 2


@pytest.mark.parametrize("most", [5, 12])
def test_bodies_are_divided_until_they_fit(most, monkeypatch):
    # Lowering stores tensors until bodies are small enough. Lowering must not choose a stored tensor again, because
    # bodies would stay large and lowering would never end.
    monkeypatch.setattr(elementwise, "MOST_SCALARS", 4)
    x = pt.vector("x", dtype="float64", shape=(5,))
    scalars = [x[0]]
    for number in range(24):
        scalars.append(pt.tanh(scalars[-1] * x[number % 5] + scalars[number // 2]))
    y = pt.tanh(x * scalars[-1] + scalars[7]) * scalars[12] + pt.exp(x - scalars[9]) * scalars[3]
    mode = mode_of_kind("cpu", loop_steps=most)
    compare([x], [y, pt.stack(scalars[::4])], [np.linspace(-1, 1, 5)], mode=mode)


def test_replaced_slices_may_overlap():
    x = pt.vector("x", dtype="float64", shape=(40,))
    y = x[3:20].set(x[20:37])[30:10:-2].set(2.0)[5].set(x[0])[15].inc(x[1])[::7].set(0.0)
    compare([x], [y, y.sum()], [np.linspace(-1, 1, 40)])

"""Trains a model on the host and on the device, each in a separate process, and compares the results.

In a chaotic model, a rounding error in the first step affects all digits in the tenth. A difference is therefore not
blamed on the device if nudges of the initial values have a comparable effect on the host (`CHAOS`). In this case, the
model is trained again with calmer settings (`calmed`), and passes only if device and host agree.
"""

from __future__ import annotations

import itertools
import math
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import theano

import optdb
from profiles import isolated, models

TOLERANCE = {"float32": 1e-4, "float64": 1e-8}
"""Largest difference that is accepted, by floatX, relative to the largest number of an array."""

SAME, CHAOTIC, DIFFERS, FAILS = "same", "chaotic", "differs", "fails"

CHAOS = 10
"""How many times what nudges do to the host's numbers the difference may be."""

CALM: dict[str, dict[str, float]] = {"resnet50": {"rate": 1e-6}, "cifar_resnet": {"rate": 1e-6}}
"""Sizes at which models are not chaotic in float64 that are so otherwise."""

NUDGES, UNITS = 3, 8
"""How often the host begins again, and how many units in the last place away."""


@dataclass
class Training:
    """The results of training a model, either on the host or on the device.

    `outputs` has the numbers of each output for each step. `nudged` has such a list for each repetition with nudged
    initial values, that is, values that are changed by a few units in the last place. `compiling` is the number of
    seconds to compile. `step` is the median number of seconds of all steps but the first one. Nodes exclude transfers.
    `stayed` lists the nodes that were left on the host, as rows `[op, reason, count]`.
    """

    outputs: list[list[Any]]
    compiling: float
    step: float
    on_device: int = 0
    on_host: int = 0
    transfers: int = 0
    nbytes: int = 0
    stayed: list[list[Any]] = field(default_factory=list)
    nudged: list[list[list[Any]]] = field(default_factory=list)


@dataclass(frozen=True)
class Settings:
    """The settings of training; `device` is the flag ``optdb.device``, and `sizes` replace default sizes."""

    steps: int = 20
    device: str = "opencl"
    topo: bool = True
    floatX: str = "float32"  # noqa: N815  (Theano's name)
    timeout: float | None = None
    sizes: dict[str, float] = field(default_factory=dict)


@dataclass
class Comparison:
    """A model's results on host and device, None if it failed; `calm` repeats a chaotic comparison, calmer."""

    model: str
    host: Training | None = None
    device: Training | None = None
    error: str = ""
    floatX: str = "float32"  # noqa: N815  (Theano's name)
    sizes: dict[str, float] = field(default_factory=dict)
    calm: Comparison | None = None

    def differences(self) -> list[float]:
        """Return, for each step, the largest relative difference of an output between host and device."""
        if self.host is None or self.device is None:
            return []
        return _by_step(self.host.outputs, self.device.outputs)

    def chaos(self) -> list[float]:
        """Return, for each step, the largest change that nudges have caused so far in the host's outputs."""
        if self.host is None:
            return []
        moved = [_by_step(self.host.outputs, nudged) for nudged in self.host.nudged]
        return list(itertools.accumulate(map(max, zip(*moved)), max))

    def moved(self) -> float:
        """Return how much the host's outputs change during training; without a change, equality proves nothing."""
        return max(map(difference, self.host.outputs[0], self.host.outputs[-1])) if self.host is not None else 0.0

    @property
    def agrees(self) -> bool:
        """Whether host and device agreed or, if the model is chaotic, agreed with calmer settings."""
        return self.verdict == SAME or (self.verdict == CHAOTIC and self.calm is not None and self.calm.agrees)

    @property
    def verdict(self) -> str:
        """The verdict: `SAME`, `CHAOTIC` (too sensitive to rounding for a comparison), `DIFFERS` or `FAILS`."""
        if self.error:
            return FAILS
        tolerance = TOLERANCE[self.floatX]
        differences = self.differences()
        if max(differences) <= tolerance:
            return SAME
        allowed = [max(tolerance, CHAOS * moved) for moved in self.chaos()]
        return CHAOTIC if all(map(operator.le, differences, allowed)) else DIFFERS


def _by_step(theirs: list[list[Any]], ours: list[list[Any]]) -> list[float]:
    return [max(map(difference, a, b)) for a, b in zip(theirs, ours, strict=True)]


def difference(a: Any, b: Any) -> float:
    """Return the largest difference of two arrays, relative to the largest number; infinite if shapes differ."""
    a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return math.inf
    if not np.array_equal(a[~np.isfinite(a)], b[~np.isfinite(b)], equal_nan=True):
        return math.inf
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    largest = max(np.abs(a).max(initial=0), np.abs(b).max(initial=0))
    return float(np.abs(a - b).max(initial=0) / largest) if largest else 0.0


def value_difference(a: Any, b: Any) -> float:
    """Return the relative difference of two values; infinite if dtypes, integers or random states differ."""
    if isinstance(a, np.random.RandomState):
        states = zip(a.get_state(), b.get_state(), strict=True)
        return 0.0 if all(np.array_equal(*pair) for pair in states) else math.inf
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype:
        return math.inf
    if a.dtype.kind not in "fc":
        return 0.0 if np.array_equal(a, b) else math.inf
    return difference(a, b)


def train(name: str, sizes: dict[str, float], steps: int, nudge: bool) -> dict[str, Any]:
    """Compile a model, as the flags say, and run some steps; with `nudge`, repeat the steps with nudged values."""
    model = models.build(name, **sizes)
    start = time.perf_counter()
    function = theano.function(model.inputs, model.outputs, updates=model.updates)
    compiling = time.perf_counter() - start
    state = [(variable, variable.get_value()) for variable in function.get_shared()] if nudge else []
    outputs, seconds = _steps(function, model.data, steps)
    explanation = optdb.explain(function, *model.data)
    assert explanation.traffic is not None  # because arguments are given
    counts = dict(explanation.places)
    on_host = counts.pop("host", 0)
    stayed = [[op, why, n] for report in explanation.reports for (op, why), n in report.by_reason().most_common()]
    from_nudged = []
    for seed in range(NUDGES if nudge else 0):
        for variable, value in state:
            variable.set_value(nudged(value, seed))
        from_nudged.append(_steps(function, model.data, steps)[0])
    training = Training(
        outputs=outputs,
        compiling=compiling,
        step=float(np.median(seconds[1:] or seconds)),
        on_device=sum(counts.values()),
        on_host=on_host,
        transfers=sum(explanation.traffic.transfers.values()),
        nbytes=sum(explanation.traffic.nbytes.values()),
        stayed=stayed,
        nudged=from_nudged,
    )
    return asdict(training)


def _steps(function: Callable[..., list], data: Sequence[np.ndarray], steps: int) -> tuple[list, list[float]]:
    outputs, seconds = [], []
    for _ in range(steps):
        start = time.perf_counter()
        results = function(*data)
        outputs.append([np.asarray(result).tolist() for result in results])
        seconds.append(time.perf_counter() - start)
    return outputs, seconds


def nudged(value: Any, seed: int, units: int = UNITS) -> Any:
    """Change each number of a float array by a few units in the last place; return other arrays unchanged."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    signs = np.random.default_rng(seed).choice([-1, 1], value.shape)
    # Convert the result, because NumPy returns a number instead of an array of rank 0.
    return np.asarray(value * (1 + signs * units * np.finfo(value.dtype).eps), value.dtype)


def compare(name: str, settings: Settings) -> Comparison:
    """Train a model on host and device; if the model is chaotic, train it again with calmer settings."""
    comparison = _compare(name, settings)
    calmer = calmed(name, settings)
    if comparison.verdict == CHAOTIC and calmer != settings:
        comparison.calm = _compare(name, calmer)
    return comparison


def calmed(name: str, settings: Settings) -> Settings:
    """Return settings with float64 and, if known for this model, sizes with which it is not chaotic."""
    return replace(settings, floatX="float64", sizes={**settings.sizes, **CALM.get(name, {})})


def _compare(name: str, settings: Settings) -> Comparison:
    comparison = Comparison(name, floatX=settings.floatX, sizes=settings.sizes)
    sides: dict[str, Any] = {}
    for side, where in (("host", "cpu"), ("device", settings.device)):
        flags = f"floatX={settings.floatX},optdb.topo={settings.topo},optdb.device={where}"
        try:
            arguments = (name, settings.sizes, settings.steps, side == "host")
            answer = isolated.call("profiles.training:train", *arguments, flags=flags, timeout=settings.timeout)
        except isolated.Failed as failure:
            return replace(comparison, error=f"on the {side}: {failure}")
        sides[side] = Training(**answer)
    return replace(comparison, **sides)

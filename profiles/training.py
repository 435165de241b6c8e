"""A model trained on both sides, each in a process of its own, and their distance.

`train` runs in the new process, and says in a `Training` what came of it; `compare` starts the processes, and makes a
`Comparison` of the two.

Some models are chaotic: what rounding does in the first step is seen in all digits of the tenth. So the host makes
its steps again from values that are some units in the last place away, and a difference that is as large as what this
makes (`CHAOS`) is not held against the device. It is no proof either: such a model is trained once more where it is
calm (`calmed`), in float64 and at a rate at which it learns smoothly, and counts only if both sides then agree.
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
    """What one side did.

    Parameters
    ----------
    outputs : list
        For each step, for each output, its numbers.
    compiling : float
        Seconds to compile the function.
    step : float
        Median seconds of a step, without the first one.
    on_device, on_host : int
        Nodes on either side, without transfers.
    transfers : int
        Transfers in one call.
    nbytes : int
        What they move.
    stayed : list
        Op, reason and number of nodes of what the lift left on the host.
    nudged : list
        The same as `outputs` for each start from values that are some units in the last place away.
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
    """How models are trained.

    Parameters
    ----------
    steps : int
        How many steps each makes.
    device : str
        What the flag ``optdb.device`` is to say.
    topo : bool
        Whether optdb's engine optimizes, on both sides, or Theano's.
    floatX : str
        What is computed in.
    timeout : float, optional
        Seconds that each side may take.
    sizes : dict of str to number
        What replaces the models' own sizes.
    """

    steps: int = 20
    device: str = "opencl"
    topo: bool = True
    floatX: str = "float32"  # noqa: N815  (Theano's name)
    timeout: float | None = None
    sizes: dict[str, float] = field(default_factory=dict)


@dataclass
class Comparison:
    """A model on both sides.

    Parameters
    ----------
    model : str
        Its name.
    host, device : Training, optional
        What they did; nothing if one of them failed.
    error : str
        How it failed.
    floatX : str
        The dtype that it was computed in.
    sizes : dict of str to number
        What has replaced the model's own sizes.
    calm : Comparison, optional
        The same model where it is not chaotic, if it was.
    """

    model: str
    host: Training | None = None
    device: Training | None = None
    error: str = ""
    floatX: str = "float32"  # noqa: N815  (Theano's name)
    sizes: dict[str, float] = field(default_factory=dict)
    calm: Comparison | None = None

    def differences(self) -> list[float]:
        """Return the relative difference of each step: the largest of its outputs'."""
        if self.host is None or self.device is None:
            return []
        return _by_step(self.host.outputs, self.device.outputs)

    def chaos(self) -> list[float]:
        """Return what nudges have done to the host's numbers by each step: the most of it."""
        if self.host is None:
            return []
        moved = [_by_step(self.host.outputs, nudged) for nudged in self.host.nudged]
        return list(itertools.accumulate(map(max, zip(*moved)), max))

    def moved(self) -> float:
        """Return how far the host's outputs went from the first step to the last: equal results of none say nothing."""
        return max(map(difference, self.host.outputs[0], self.host.outputs[-1])) if self.host is not None else 0.0

    @property
    def agrees(self) -> bool:
        """Whether both sides have been seen to do the same: a chaotic model does so where it is calm, or not at all."""
        return self.verdict == SAME or (self.verdict == CHAOTIC and self.calm is not None and self.calm.agrees)

    @property
    def verdict(self) -> str:
        """Whether both sides did the same, or did so as far as rounding lets one tell."""
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
    """Return the largest difference of two arrays' numbers, relative to the largest number.

    Infinite where the shapes differ, or which elements are finite.
    """
    a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return math.inf
    if not np.array_equal(a[~np.isfinite(a)], b[~np.isfinite(b)], equal_nan=True):
        return math.inf
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    largest = max(np.abs(a).max(initial=0), np.abs(b).max(initial=0))
    return float(np.abs(a - b).max(initial=0) / largest) if largest else 0.0


def train(name: str, sizes: dict[str, float], steps: int, nudge: bool) -> dict[str, Any]:
    """Build a model, compile it and let it make some steps, where the flags of this process say.

    Parameters
    ----------
    name : str
        Of the model.
    sizes : dict of str to number
        What replaces the sizes that the name stands for.
    steps : int
        How many; at least one.
    nudge : bool
        Whether to make them again, from values a little away.

    Returns
    -------
    dict
        A `Training`.
    """
    model = models.build(name, **sizes)
    start = time.perf_counter()
    function = theano.function(model.inputs, model.outputs, updates=model.updates)
    compiling = time.perf_counter() - start
    state = [(variable, variable.get_value()) for variable in function.get_shared()] if nudge else []
    outputs, seconds = _steps(function, model.data, steps)
    explanation = optdb.explain(function, *model.data)
    assert explanation.traffic is not None  # counted where arguments are given
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
    """Return an array of floats with each number some units in the last place away, up or down; others as they are."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    signs = np.random.default_rng(seed).choice([-1, 1], value.shape)
    return (value * (1 + signs * units * np.finfo(value.dtype).eps)).astype(value.dtype)


def compare(name: str, settings: Settings) -> Comparison:
    """Train a model on both sides; again where it is calm, if it turns out to be chaotic."""
    comparison = _compare(name, settings)
    calmer = calmed(name, settings)
    if comparison.verdict == CHAOTIC and calmer != settings:
        comparison.calm = _compare(name, calmer)
    return comparison


def calmed(name: str, settings: Settings) -> Settings:
    """Return settings under which a model is not chaotic, as far as such are known."""
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

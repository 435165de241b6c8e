"""Compares the ways to compile a model; `compare` runs in a separate process, and returns JSON values."""

from __future__ import annotations

import copy
import importlib
import resource
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import theano
from theano.ifelse import IfElse

from models import registry
from models.python_code import python_code
from models.records import Report, Result
from models.values import difference, is_finite, nudged
from models.ways import ENGINE, STOCK, WAYS, Compiled
from profiles.measure import destroyed_ranks
from profiles.models import Model
from profiles.models.base import shared_variables

PHASE = "keras_learning_phase"
"""The name of the input that says whether a net of Keras is trained."""

ERROR_LINES = 8

NUDGES = 2
"""How often stock computes again from values that are some units in the last place away."""


def limited(seconds: int, function: str, args: list[Any]) -> Any:
    """Call a function, given as ``module:name``; if it takes more CPU seconds than given, SIGXCPU ends the process."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    module, _, name = function.partition(":")
    return getattr(importlib.import_module(module), name)(*args)


def compare(name: str, ways: list[str], steps: int) -> dict[str, Any]:
    """Build a model, compile it in several ways, and compare the values of some calls; return a `Report` as JSON."""
    entry = registry.entry(name)
    report = Report(name, entry.library, theano.config.floatX)
    with python_code():
        model = registry.build(name)
    with python_code(), theano.change_flags(**dict(entry.flags)):
        trial = Trial(model, steps)
        expected = trial.run(STOCK, report)
        if expected is None:
            return asdict(report)
        report.not_finite = trial.never_finite(expected)
        found = {}
        # Raise the errors of rewriters, because they are faults of optdb; by default, Theano only logs them.
        with theano.change_flags(on_opt_error="raise"):
            for way in ways:
                if way != STOCK:
                    found[way] = trial.run(way, report)
        for way, values in found.items():
            if values is not None:
                result = report.results[way]
                result.difference, result.where = _compared(trial, expected, values)
        if any(not report.agrees(way) for way in found):
            report.chaos = max(trial.chaos(expected, seed) for seed in range(NUDGES))
    return asdict(report)


def _compared(trial: Trial, expected: list[Any], values: list[Any]) -> tuple[float, str]:
    differences = [difference(a, b) for a, b in zip(expected, values, strict=True)]
    worst = int(np.argmax(differences)) if differences else 0
    return (differences[worst], trial.names[worst]) if differences else (0.0, "")


class Trial:
    """A model with its data and the initial values of its shared variables."""

    def __init__(self, model: Model, steps: int):
        self.model, self.steps = model, steps
        self.shared = shared_variables(model)
        self.first = [copy.deepcopy(variable.get_value()) for variable in self.shared]
        outputs = [f"output {number} of call {step}" for step in range(steps) for number in range(len(model.outputs))]
        self.names = outputs + [
            f"shared variable {variable.name or number}" for number, variable in enumerate(self.shared)
        ]

    def never_finite(self, values: list[Any]) -> list[str]:
        """Return the outputs that are finite in no call, and the shared variables that are not finite at the end.

        An output may be non-finite in some calls. Keras's metrics, for instance, describe earlier calls, so they are 0
        / 0 in the first call.
        """
        count = len(self.model.outputs)
        returned = count * self.steps
        never = [f"output {i}" for i in range(count) if not any(map(is_finite, values[i:returned:count]))]
        ends = zip(self.names[returned:], values[returned:], strict=True)
        return never + [name for name, value in ends if not is_finite(value)]

    def run(self, way: str, report: Report) -> list[Any] | None:
        """Compile the model in one way, call it, and record the result; return all values, or None after a failure."""
        result = report.results[way] = Result()
        self.reset()
        start = time.process_time()
        try:
            compiled = WAYS[way].compile(self.model, False)
            result.compiling = time.process_time() - start
            values = self.values(compiled)
            _describe(result, compiled, way)
        except Exception as error:
            result.error = _last_lines(error)
            return None
        return values

    def reset(self, change: Callable[[Any], Any] = copy.deepcopy) -> None:
        """Reset the shared variables to their initial values."""
        for variable, value in zip(self.shared, self.first):
            variable.set_value(change(value))

    def values(self, compiled: Compiled) -> list[Any]:
        """Make all calls; return all outputs, and the final values of the shared variables."""
        values: list[Any] = []
        for data in self.calls():
            values += [np.array(output) for output in compiled.call(*data) or []]
        compiled.sync()
        return values + [copy.deepcopy(variable.get_value()) for variable in self.shared]

    def calls(self) -> Iterator[list[np.ndarray]]:
        """Yield the arguments of each call; numbers vary slightly, and Keras's learning phase is off in one call."""
        for step in range(self.steps):
            yield [
                _varied(variable.name, value, step, self.steps)
                for variable, value in zip(self.model.inputs, self.model.data)
            ]

    def chaos(self, expected: list[Any], seed: int) -> float:
        """Return how much stock's values change if the initial values change by a few units in the last place."""
        compiled = WAYS[STOCK].compile(self.model, False)
        self.reset(lambda value: nudged(copy.deepcopy(value), seed))
        values = self.values(compiled)
        return max((difference(a, b) for a, b in zip(expected, values)), default=0.0)


def _varied(name: str | None, value: np.ndarray, step: int, steps: int) -> np.ndarray:
    if name == PHASE:
        return np.asarray(step != steps // 2, value.dtype)
    if value.dtype.kind != "f" or not value.ndim:
        return value
    return (value * (1 - 0.01 * step)).astype(value.dtype)


def _describe(result: Result, compiled: Compiled, way: str) -> None:
    """Record the number of nodes of the graph, and where the nodes run."""
    nodes = list(compiled.function.maker.fgraph.apply_nodes)
    # Do not count nodes that only overwrite scalars, because this saves nothing.
    result.nodes, result.inplace = len(nodes), sum(any(destroyed_ranks(node)) for node in nodes)
    result.branches = sum(isinstance(node.op, IfElse) for node in nodes)
    if way in (STOCK, ENGINE):
        return
    explanation = compiled.explain()
    places = dict(explanation.places)
    result.on_host = places.pop("host", 0)
    result.on_device = sum(places.values())
    result.transfers = sum(explanation.transfers.values())
    result.stayed = [[op, why, n] for told in explanation.reports for (op, why), n in told.by_reason().most_common()]


def _last_lines(error: Exception) -> str:
    lines = "".join(traceback.format_exception(error)).strip().splitlines()
    told = [line for line in lines if line.strip()]
    return "\n".join(told[-ERROR_LINES:])

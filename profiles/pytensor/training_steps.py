"""Runs training steps in a separate process on request.

The module is run as a file, ``python -P profiles/pytensor/training_steps.py MODEL UPDATES SIZE SIDE``, and uses the
first checkout of optdb in ``PYTHONPATH``. This checkout may differ from the one that contains the file. Each line of
standard input is a number of seconds. For each line, the process makes steps for so many seconds, and writes the mean
CPU seconds (of all threads and child processes) and the mean wall seconds of a step.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

__all__ = ["MODELS", "SIDES", "UPDATES", "step_of"]

#: For the small and the large size: the number of inputs, of hidden units (0 for none), and of rows in a batch.
MODELS = {
    "logistic": {"small": (32, 0, 8), "large": (784, 0, 100)},
    "mlp": {"small": (32, 32, 8), "large": (784, 500, 20)},
}
UPDATES = ("sgd", "adam")
#: Sides: The configurations: PyTensor's default linker, optdb's linker, and optdb's linker with many steps in one call.
SIDES = ("default", "opencl", "opencl, repeated")
CLASSES = 10
#: Number of steps in one call, in the configuration with many steps per call.
REPEATED = 100
Single = np.float32


def step_of(model: str, updates: str, size: str, side: str) -> tuple[Callable[[], Any], int]:
    """Compile a training loop; return a function that makes steps, and the number of steps of each call."""
    rng = np.random.default_rng(1)
    inputs, hidden, rows = MODELS[model][size]
    widths = [inputs, *([hidden] if hidden else []), CLASSES]
    x, y = pt.fmatrix("x"), pt.fmatrix("y")
    parameters, values = [], x
    for number, (before, after) in enumerate(itertools.pairwise(widths)):
        weights = rng.normal(size=(before, after)) / np.sqrt(before)
        parameters += [pytensor.shared(weights.astype("float32")), pytensor.shared(np.zeros(after, "float32"))]
        values = (pt.maximum(values, Single(0)) if number else values) @ parameters[-2] + parameters[-1]
    loss = -(y * pt.special.log_softmax(values, axis=1)).sum(axis=1).mean()
    changes = (_sgd if updates == "sgd" else _adam)(loss, parameters)
    function = pytensor.function([x, y], loss, updates=changes, mode=None if side == "default" else "OPENCL")
    # The labels are random, so that the loss does not fall and no number becomes subnormal.
    data = rng.normal(size=(rows, inputs)).astype("float32")
    labels = np.eye(CLASSES, dtype="float32")[rng.integers(CLASSES, size=rows)]
    if side == "opencl, repeated":
        import optdb.pytensor

        return lambda: optdb.pytensor.call_n_times(function, REPEATED, data, labels), REPEATED
    return lambda: function(data, labels), 1


def _sgd(loss: Any, parameters: list[Any]) -> dict[Any, Any]:
    return {var: var - Single(1e-4) * change for var, change in zip(parameters, pt.grad(loss, parameters))}


def _adam(loss: Any, parameters: list[Any]) -> dict[Any, Any]:
    """Return the updates of Adam (Kingma and Ba, 2015)."""
    count = pytensor.shared(Single(0))
    now = count + Single(1)
    changes: dict[Any, Any] = {count: now}
    for parameter, change in zip(parameters, pt.grad(loss, parameters)):
        mean, square = [pytensor.shared(np.zeros_like(parameter.get_value())) for _ in range(2)]
        changes[mean] = Single(0.9) * mean + Single(0.1) * change
        changes[square] = Single(0.999) * square + Single(0.001) * pt.sqr(change)
        unbiased = changes[mean] / (1 - Single(0.9) ** now)
        deviation = pt.sqrt(changes[square] / (1 - Single(0.999) ** now))
        changes[parameter] = parameter - Single(1e-5) * unbiased / (deviation + Single(1e-8))
    return changes


def _cpu_s() -> float:
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def main() -> None:
    """Compile the training loop that is named on the command line, and make steps on request."""
    warnings.simplefilter("ignore")
    if sys.argv[4] != "default":
        import optdb.pytensor  # noqa: F401  (registers the mode)
    step, count = step_of(*sys.argv[1:5])
    step()
    gc.collect()
    gc.disable()
    print(json.dumps([0, 0]), flush=True)
    for line in sys.stdin:
        begun, begun_cpu, steps = time.perf_counter(), _cpu_s(), 0
        while not steps or time.perf_counter() - begun < float(line):
            step()
            steps += count
        print(json.dumps([(_cpu_s() - begun_cpu) / steps, (time.perf_counter() - begun) / steps]), flush=True)


if __name__ == "__main__":
    main()

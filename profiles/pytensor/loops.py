"""Measures functions of Scan in mode OPENCL beside PyTensor's default: ``python -m profiles.pytensor.loops``."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
import pytensor
import pytensor.tensor as pt
from rich.table import Table

import optdb.pytensor  # noqa: F401  (registers the mode)
from profiles import terminal
from profiles.pytensor.cli import json_option, write_json

__all__ = ["LOOPS", "Loop", "main", "measure"]

SIDES = {"OPENCL": "OPENCL", "default": None}
#: Inputs, outputs and arguments of a function.
Case = tuple[list[Any], list[Any], list[Any]]


@dataclass(frozen=True)
class Loop:
    """What a call takes on one side.

    Parameters
    ----------
    name, side
        What was measured.
    cpu_ms, first_s
        CPU milliseconds of a call, the median of the turns; seconds of compiling and of the first call.
    """

    name: str
    side: str
    cpu_ms: float
    first_s: float


def garch(steps: int) -> Case:
    """Return the log density of a GARCH(1, 1) process and its gradient."""
    returns = np.random.default_rng(1).normal(size=steps)
    x = pt.vector("x")
    mean, level, shock, memory = x[0], pt.exp(x[1]), pt.sigmoid(x[2]), pt.sigmoid(x[3])
    variance = pytensor.scan(
        lambda value, last: level + shock * (value - mean) ** 2 + memory * last,
        sequences=[pt.as_tensor(returns)],
        outputs_info=[pt.ones(())],
        return_updates=False,
    )
    density = -0.5 * ((returns - mean) ** 2 / variance + pt.log(variance)).sum()
    return [x], [density, pt.grad(density, x)], [np.array([0.1, -1.0, 0.2, 0.3])]


def lstm(steps: int, rows: int, width: int, has_gradient: bool) -> Case:
    """Return the loss of a long short-term memory in single precision, and the gradient of its weights."""
    rng = np.random.default_rng(1)
    x = pt.tensor("x", shape=(None, rows, width), dtype="float32")
    shapes = [(width, 4 * width), (width, 4 * width), (4 * width,)]
    weights = [pytensor.shared((0.05 * rng.normal(size=shape)).astype("float32")) for shape in shapes]

    def step(row: Any, hidden: Any, cell: Any, of_row: Any, of_hidden: Any, bias: Any) -> tuple[Any, Any]:
        gates = pt.dot(row, of_row) + pt.dot(hidden, of_hidden) + bias
        into, kept, out, new = [gates[:, width * n : width * (n + 1)] for n in range(4)]
        cell = pt.sigmoid(kept) * cell + pt.sigmoid(into) * pt.tanh(new)
        return pt.sigmoid(out) * pt.tanh(cell), cell

    start = pt.zeros((rows, width), "float32")
    states, _ = pytensor.scan(
        step, sequences=[x], outputs_info=[start, start], non_sequences=weights, return_updates=False
    )
    loss = (states[-1] ** 2).sum()
    outputs = [loss, *pt.grad(loss, weights)] if has_gradient else [loss]
    return [x], outputs, [rng.normal(size=(steps, rows, width)).astype("float32")]


LOOPS: dict[str, Callable[[], Case]] = {
    "GARCH, 200 steps": lambda: garch(200),
    "GARCH, 20,000 steps": lambda: garch(20_000),
    "LSTM, 50 x 32 x 128, forward": lambda: lstm(50, 32, 128, False),
    "LSTM, 50 x 32 x 128, gradient": lambda: lstm(50, 32, 128, True),
}


def measure(name: str, turns: int = 7, turn_s: float = 0.5, settle_s: float = 5.0) -> list[Loop]:
    """Call a function in both modes in turn.

    Parameters
    ----------
    name
        Of `LOOPS`.
    turns, turn_s
        How many turns a side has, and how long each is.
    settle_s
        For how many seconds each side is called before.
    """
    inputs, outputs, arguments = LOOPS[name]()
    functions, firsts = {}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for side, mode in SIDES.items():
            begun = time.perf_counter()
            functions[side] = pytensor.function(inputs, outputs, mode=mode)
            functions[side](*arguments)
            firsts[side] = time.perf_counter() - begun
        for function in functions.values():
            _cpu_s(function, arguments, settle_s)
        taken: dict[str, list[float]] = {side: [] for side in functions}
        for _ in range(turns):
            for side, function in functions.items():
                taken[side].append(_cpu_s(function, arguments, turn_s))
    return [Loop(name, side, 1e3 * statistics.median(times), firsts[side]) for side, times in taken.items()]


def _cpu_s(function: Any, arguments: list[Any], seconds: float) -> float:
    """Call a function for some seconds; return the CPU seconds of a call."""
    begun, begun_cpu, calls = time.perf_counter(), time.process_time(), 0
    while not calls or time.perf_counter() - begun < seconds:
        function(*arguments)
        calls += 1
    return (time.process_time() - begun_cpu) / calls


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice(list(LOOPS)))
@click.option("--turns", type=click.IntRange(min=1), default=7, show_default=True, help="The median counts.")
@click.option("--settle", default=5.0, show_default=True, help="Seconds of calls that do not count.")
@json_option
def main(names: tuple[str, ...], turns: int, settle: float, json_file: Any) -> None:
    """Measure functions of loops: CPU milliseconds of a call, in turns."""
    table = Table("loop", "side", "CPU ms a call", "s until the first", title="Functions of Scan")
    loops: list[Loop] = []
    for name in names or LOOPS:
        loops += measure(name, turns, settle_s=settle)
        for loop in loops[-2:]:
            table.add_row(loop.name, loop.side, f"{loop.cpu_ms:.3f}", f"{loop.first_s:.1f}")
    terminal.console().print(table)
    write_json(loops, json_file)


if __name__ == "__main__":
    main()

"""Measures a training step on a device, in PyTensor's default mode and, for comparison, with another checkout of optdb.

``python -m profiles.pytensor.training`` trains a logistic regression and a multilayer perceptron, both with gradient
descent and with Adam. Each configuration has a separate process, and the processes take turns. Times are medians.
Before the measurements, untimed steps compile, record commands and merge launches.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from profiles import isolated, terminal
from profiles.pytensor import training_steps

__all__ = ["Step", "Training", "main", "measure"]

#: The name of the configuration that uses the other checkout.
OTHER = "other checkout"


@dataclass(frozen=True)
class Step:
    """The median times of a step in one configuration, in microseconds of CPU time and wall time."""

    model: str
    updates: str
    size: str
    side: str
    cpu_us: float
    wall_us: float


class Training:
    """A process that trains with a checkout of optdb. If it ends early, `isolated.Failed` is raised."""

    def __init__(self, model: str, updates: str, size: str, side: str, checkout: Path = isolated.CHECKOUT) -> None:
        python = checkout / ".venv-pytensor" / "bin" / "python"
        program = str(python) if python.exists() else sys.executable
        self._process = subprocess.Popen(
            [program, "-P", training_steps.__file__, model, updates, size, side],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
        )
        self._title = f"{model}, {updates}, {size}, {side}"
        self._receive()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def turn(self, seconds: float) -> tuple[float, float]:
        """Make steps for some seconds; return the mean CPU seconds and the mean wall seconds of a step."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return self._receive()

    def _receive(self) -> tuple[float, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise isolated.Failed(f"{self._title}: the process ended with {self._process.wait()}")
        cpu_s, wall_s = json.loads(line)
        return cpu_s, wall_s


def measure(
    model: str,
    updates: str,
    size: str,
    other: Path | None = None,
    turns: int = 5,
    turn_s: float = 0.5,
    settle_s: float = 6,
) -> list[Step]:
    """Train in all configurations in turn, after `settle_s` untimed seconds in each configuration.

    If an `other` checkout of optdb is given, it should have an environment in ``.venv-pytensor``.
    """
    sides: dict[str, Any] = {side: (side, isolated.CHECKOUT) for side in training_steps.SIDES}
    if other is not None:
        sides[OTHER] = ("opencl", other)
    with contextlib.ExitStack() as stack:
        trainings = {
            name: stack.enter_context(Training(model, updates, size, side, checkout))
            for name, (side, checkout) in sides.items()
        }
        for training in trainings.values():
            training.turn(settle_s)
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in trainings}
        for _ in range(turns):
            for name, training in trainings.items():
                taken[name].append(training.turn(turn_s))
    medians = {name: [1e6 * statistics.median(column) for column in zip(*times)] for name, times in taken.items()}
    return [Step(model, updates, size, name, cpu, wall) for name, (cpu, wall) in medians.items()]


def render(steps: Sequence[Step]) -> Table:
    """Return a table with the microseconds of CPU time and wall time of each configuration."""
    sides = list(dict.fromkeys(step.side for step in steps))
    left = ("model", "updates", "size")
    caption = "microseconds of all threads / of the clock, medians"
    table = terminal.table(*left, *sides, left=left, title="A training step", caption=caption)
    for key, group in itertools.groupby(steps, lambda step: (step.model, step.updates, step.size)):
        table.add_row(*key, *[f"{step.cpu_us:,.0f} / {step.wall_us:,.0f}" for step in group])
    return table


@click.command()
@click.option("--size", "sizes", multiple=True, type=click.Choice(["small", "large"]), default=("small", "large"))
@click.option("--model", "models", multiple=True, type=click.Choice(list(training_steps.MODELS)))
@click.option(
    "--other", type=click.Path(exists=True, path_type=Path), help="Another checkout of optdb to compare with."
)
@terminal.count_option("--turns", 5, "Number of runs; the median is shown.")
@click.option("--settle", default=6.0, show_default=True, help="Seconds of warm-up steps.")
@terminal.json_option
def main(
    sizes: tuple[str, ...],
    models: tuple[str, ...],
    other: Path | None,
    turns: int,
    settle: float,
    json_file: Path | None,
) -> None:
    """Measure steps of training."""
    console = terminal.console()
    steps: list[Step] = []
    chosen = models or tuple(training_steps.MODELS)
    for model, size, updates in itertools.product(chosen, sizes, training_steps.UPDATES):
        found = measure(model, updates, size, other, turns, settle_s=settle)
        console.print(*[f"{step.side} {step.cpu_us:.0f} / {step.wall_us:.0f}" for step in found], sep=", ")
        steps += found
    console.print(render(steps))
    terminal.write_json(steps, json_file)


if __name__ == "__main__":
    main()

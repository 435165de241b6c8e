"""Compares the time of an evaluation of logp and dlogp on a device, in PyTensor's default mode and in JAX.

Each configuration has a separate process, and the processes take turns. Times are medians, in CPU milliseconds of all
threads of a process or in wall milliseconds; on a GPU, wall time is what matters.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click
from rich.table import Table

from profiles import isolated, terminal
from profiles.pytensor import cli, sides, workers

__all__ = ["CLOCKS", "Evaluation", "main", "measure", "render"]

CLOCKS = ("cpu", "wall")


@dataclass(frozen=True)
class Evaluation:
    """The median milliseconds of an evaluation of a model in one of the configurations of `SIDES`."""

    model: str
    size: int
    side: str
    cpu_ms: float
    wall_ms: float

    def ms(self, clock: str) -> float:
        """Return the milliseconds according to one of `CLOCKS`."""
        return self.cpu_ms if clock == "cpu" else self.wall_ms


def measure(
    name: str,
    size: int,
    chosen: Sequence[str],
    turns: int = 5,
    at_least_s: float = 0.3,
    failed: Callable[[str], None] = lambda message: None,
    start: Callable[[str, int, str], workers.Worker] = workers.Worker,
) -> list[Evaluation]:
    """Evaluate a model in several configurations in turn, each time for at least `at_least_s` seconds.

    If a configuration cannot compile the model, `failed` is called with the error, and only the others are measured.
    """
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(chosen)) as threads:
        # All configurations compile at the same time, so that one that fails to compile does not delay the others.
        starting = {side: threads.submit(start, name, size, side) for side in chosen}
        ready = {}
        for side, future in starting.items():
            try:
                ready[side] = stack.enter_context(future.result())
            except isolated.Failed as failure:
                failed(str(failure))
        taken = workers.race(ready, turns, at_least_s)
    return [
        Evaluation(
            name,
            size,
            side,
            1e3 * statistics.median(turn.cpu for turn in seconds),
            1e3 * statistics.median(turn.wall for turn in seconds),
        )
        for side, seconds in taken.items()
    ]


def render(evaluations: Sequence[Evaluation], clock: str, reference: str = sides.DEFAULT) -> Table:
    """Return a table of models, with the milliseconds of each configuration and the ratio to the reference."""
    chosen = list(dict.fromkeys(row.side for row in evaluations))
    by_model: dict[tuple[str, int], dict[str, Evaluation]] = {}
    for one in evaluations:
        by_model.setdefault((one.model, one.size), {})[one.side] = one
    others = [side for side in chosen if side != reference]
    meaning = "CPU milliseconds of all threads" if clock == "cpu" else "milliseconds of the clock"
    table = terminal.table(
        *("model", "size", *chosen, *(f"{side} / {reference}" for side in others)),
        left=["model"],
        title="An evaluation of logp and dlogp",
        caption=f"{meaning}, medians; ratios to {reference}",
    )
    for (name, size), row in by_model.items():
        times = [f"{row[side].ms(clock):.4g}" if side in row else "-" for side in chosen]
        ratios = [
            f"{row[side].ms(clock) / row[reference].ms(clock):.2f}" if {side, reference} <= row.keys() else "-"
            for side in others
        ]
        table.add_row(name, f"{size:,}", *times, *ratios)
    return table


@click.command()
@cli.models_argument
@cli.sizes_option("large")
@cli.sides_option("evaluate", sides.DEFAULT, sides.OPENCL, "jax")
@click.option("--clock", type=click.Choice(CLOCKS), default="cpu", show_default=True, help="Clock whose time is shown.")
@terminal.count_option("--turns", 5, "Number of runs; the median is shown.")
@terminal.json_option
def main(
    names: tuple[str, ...], size: str, chosen: tuple[str, ...], clock: str, turns: int, json_file: Path | None
) -> None:
    """Measure MODELs; by default, all twelve models."""
    left = cli.chosen_sides(chosen)
    console = terminal.console()
    evaluations: list[Evaluation] = []
    for name, number in cli.sizes(cli.model_names(names), size).items():
        rows = measure(name, number, left, turns, failed=lambda message: click.echo(f"failed: {message}", err=True))
        evaluations += rows
        console.print(f"{name}: {', '.join(f'{row.side} {row.ms(clock):.4g} ms' for row in rows)}", highlight=False)
    console.print(render(evaluations, clock, left[0]))
    terminal.write_json(evaluations, json_file)


if __name__ == "__main__":
    main()

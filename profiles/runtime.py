"""Measures the speed of a device: ``python -m profiles.runtime``.

Single operations and training steps are timed on the device and with Theano's C code. Operations are also timed with
NumPy and a C program. With ``--cold MODEL``, a training step is timed from the start of a process to the first result
instead.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import theano
from rich.table import Table

from profiles import cli, files, isolated, operations, starts, stopwatch, terminal
from profiles.starts import WALL_PARTS as PARTS
from profiles.starts import Start

if TYPE_CHECKING:
    pass

MODELS = ("mlp", "cifar_resnet", "lstm", "gru30", "transformer")

LARGER: dict[str, dict[str, int]] = {
    "mlp": {"width": 512, "batch": 128},
    "cifar_resnet": {"n": 2, "width": 16, "batch": 32, "size": 32},
    "lstm": {"width": 128, "steps": 20, "batch": 32, "vocabulary": 1000},
    "gru30": {"width": 128, "batch": 32},
    "transformer": {"width": 128, "heads": 4, "tokens": 32, "batch": 16},
}
"""Sizes at which models of the zoo, which are small, compute for longer than it takes to launch that."""

LARGE = (10_000_000, 4096, (1024, 2048))
SMALL = (1000, 64, (32,))
"""Elements of vectors, and sides of matrices that are summed and multiplied."""


@dataclass(frozen=True)
class Race:
    """The result of a task: for each contender, the seconds of a call in each measurement."""

    task: str
    seconds: dict[str, list[float]]

    def median(self, contender: str) -> float:
        """Return the median seconds of a contender that computed the task."""
        return statistics.median(self.seconds[contender])

    @property
    def ratio(self) -> float:
        """The time of Theano's C code divided by that of the device."""
        return self.median(operations.THEANO) / self.median(operations.DEVICE)


def measure(tasks: Iterable[operations.Task], repeat: int) -> Iterator[Race]:
    """Time the contenders of each task, which take turns; yield the results."""
    for task in tasks:
        yield Race(task.name, stopwatch.race(task.contenders, repeat, task.turn, task.settle))


def render(races: Sequence[Race]) -> Table:
    """Return the table of tasks."""
    columns = ("task", *operations.CONTENDERS, "ratio")
    caption = "ratio: Theano's C code / the device"
    table = terminal.table(*columns, left=["task"], title="Milliseconds, medians", caption=caption)
    for race in races:
        cells = [f"{race.median(name) * 1000:.2f}" if name in race.seconds else "" for name in operations.CONTENDERS]
        table.add_row(race.task, *cells, f"{race.ratio:.2f}x")
    return table


def render_starts(model: str, starts: Sequence[Start]) -> Table:
    """Return the table of starts."""
    title = f"Seconds from the start of a process to the first result of {model}"
    left = ("computed by", "caches")
    table = terminal.table(*left, *PARTS, "all", "of processors", left=left, title=title)
    for start in starts:
        cells = [f"{start.wall[part]:.2f}" for part in PARTS]
        table.add_row(start.side, start.cache, *cells, f"{start.wall_total:.2f}", f"{start.cpu_total:.2f}")
    return table


def write_plot(races: Sequence[Race], path: Path) -> None:
    """Draw the speed of each contender relative to Theano's C code, with a row for each task."""
    with terminal.drawing(path, (9, 1.5 + 0.4 * len(races))) as (figure, axes):
        for contender in operations.CONTENDERS:
            there = [(row, race) for row, race in enumerate(races) if contender in race.seconds]
            times = [race.median(operations.THEANO) / race.median(contender) for _, race in there]
            axes.plot(times, [row for row, _ in there], "o", label=contender)
        axes.set_yticks(range(len(races)), [race.task for race in races])
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlabel("speedup over Theano's C code")
        axes.grid(alpha=0.3)
        figure.legend(loc="outside right center")


def write_plot_of_starts(model: str, starts: Sequence[Start], path: Path) -> None:
    """Draw a stacked bar for each start."""
    names = [f"{start.side}, {start.cache}" for start in starts]
    left = [0.0] * len(starts)
    with terminal.drawing(path, (8, 3.5)) as (_, axes):
        for part in PARTS:
            widths = [start.wall[part] for start in starts]
            axes.barh(names, widths, left=left, label=part)
            left = [before + width for before, width in zip(left, widths)]
        axes.invert_yaxis()
        axes.set_xlabel(f"seconds to the first result of {model}")
        axes.legend()


def _tasks(small: bool, single: bool, larger: bool, chosen: Sequence[str], device: str) -> Iterator[operations.Task]:
    if single:
        elements, side, products = SMALL if small else LARGE
        yield from operations.tasks(elements, side, products, device)
    for name in chosen:
        yield operations.training_step(name, device)
        if larger and name in LARGER:
            yield operations.training_step(name, device, **LARGER[name])


@click.command()
@click.argument("chosen", metavar="[MODELS]...", nargs=-1, type=cli.MODEL_NAME)
@click.option("--single/--no-single", default=True, show_default=True, help="Also measure single operations.")
@click.option("--small", is_flag=True, help="Measure operations on small arrays, to show the overhead of a call.")
@click.option("--larger/--no-larger", default=True, show_default=True, help="Also train models of larger sizes.")
@terminal.device_option(what="Device, named as in the flag optdb.device.")
@terminal.count_option("--repeat", 15, "Number of turns of each contender.")
@click.option("--cold", "cold_model", metavar="MODEL", type=cli.MODEL_NAME, help="Measure the start of this model.")
@click.option("--timeout", type=float, help="Timeout of a start, in seconds.")
@terminal.json_option
@click.option("--plot", type=cli.PICTURE, help="Draw the numbers into this file.")
def main(
    chosen: tuple,
    single: bool,
    small: bool,
    larger: bool,
    device: str,
    repeat: int,
    cold_model: str | None,
    timeout: float | None,
    json_file: Path | None,
    plot: Path | None,
) -> None:
    """Measure operations and the training steps of MODELS, on the device and with Theano's C code.

    Everything is computed in float32. If no model is named, a few default models are measured.
    """
    if theano.config.optdb.device != "cpu":
        raise click.UsageError("with the flag optdb.device, nothing would run in C code: use --device instead")
    console = terminal.console()
    if cold_model:
        try:
            starts = measure_starts(cold_model, device, timeout)
        except isolated.Failed as failure:
            raise click.ClickException(f"{cold_model}: {failure}") from None
        console.print(render_starts(cold_model, starts))
        numbers: dict[str, object] = {"model": cold_model, "starts": starts}
    else:
        with theano.change_flags(floatX="float32"):
            races = _with_progress(_tasks(small, single, larger, chosen or MODELS, device), repeat)
        console.print(render(races))
        numbers = {"tasks": races}
    terminal.write_json({"environment": files.environment(), **numbers}, json_file)
    if plot and cold_model:
        write_plot_of_starts(cold_model, starts, plot)
    elif plot:
        write_plot(races, plot)
    terminal.print_paths(numbers=json_file, plot=plot)


def _with_progress(tasks: Iterable[operations.Task], repeat: int) -> list[Race]:
    races = []
    with terminal.progress() as progress:
        bar = progress.add_task("operations and models", total=None)
        for race in measure(tasks, repeat):
            races.append(race)
            # Print times at once, because a long run may be stopped before the table is printed.
            medians = ", ".join(f"{name} {race.median(name) * 1000:.2f} ms" for name in race.seconds)
            progress.console.print(f"{race.task}: {medians}", highlight=False, soft_wrap=True)
            progress.update(bar, description=f"{race.task}: done")
    return races


#: The configurations whose starts are compared.
SIDES = ("device", "Theano C", "Theano alone")


def measure_starts(name: str, device: str = "opencl", timeout: float | None = None) -> list[Start]:
    """Run one training step of a model in a new process, with empty and with full caches, for each of `SIDES`."""
    flags = {
        "device": f"optdb.topo=True,optdb.device={device}",
        "Theano C": "optdb.topo=True",
        "Theano alone": "optdb.topo=False,optdb.clinker=False",
    }
    return starts.measure(name, {side: flags[side] for side in SIDES}, calls=1, timeout=timeout)


if __name__ == "__main__":
    main()

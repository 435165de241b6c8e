"""The speed of a device: ``python -m profiles.runtime``.

Times single operations and training steps on the device, with Theano's C code, and, if possible, with NumPy and a C
program. The contenders take turns in one process, and times are medians by the clock. ``--cold MODEL`` instead times a
training step from the start of a process to the first result, with empty and with full caches.

A training task continues for many steps: a turn is several consecutive steps, after some seconds of training.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import theano
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from profiles import cli, files, isolated, operations, screen, starts, stopwatch
from profiles.starts import WALL_PARTS as PARTS
from profiles.starts import Start

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    """The seconds of each turn of each contender for one task."""

    task: str
    seconds: dict[str, list[float]]

    def median(self, contender: str) -> float:
        """Return the median seconds of a contender that took part."""
        return statistics.median(self.seconds[contender])

    @property
    def ratio(self) -> float:
        """Theano's C time divided by the device's."""
        return self.median(operations.THEANO) / self.median(operations.DEVICE)


def measure(tasks: Iterable[operations.Task], repeat: int) -> Iterator[Race]:
    """Make the contenders of each task take turns."""
    for task in tasks:
        yield Race(task.name, stopwatch.race(task.contenders, repeat, task.turn, task.settle))


def render(races: Sequence[Race]) -> Table:
    """Return the table of tasks."""
    table = Table(title="Milliseconds, medians", caption="ratio: Theano's C code / the device")
    table.add_column("task")
    for contender in operations.CONTENDERS:
        table.add_column(contender, justify="right")
    table.add_column("ratio", justify="right")
    for race in races:
        cells = [f"{race.median(name) * 1000:.2f}" if name in race.seconds else "" for name in operations.CONTENDERS]
        table.add_row(race.task, *cells, f"{race.ratio:.2f}x")
    return table


def render_starts(model: str, starts: Sequence[Start]) -> Table:
    """Return the table of starts."""
    table = Table(title=f"Seconds from the start of a process to the first result of {model}")
    for heading in ("computed by", "caches"):
        table.add_column(heading)
    for heading in (*PARTS, "all", "of processors"):
        table.add_column(heading, justify="right")
    for start in starts:
        cells = [f"{start.wall[part]:.2f}" for part in PARTS]
        table.add_row(start.side, start.cache, *cells, f"{start.wall_total:.2f}", f"{start.cpu_total:.2f}")
    return table


def write_json(numbers: dict[str, object], path: Path) -> None:
    """Write all numbers, and everything that they depend on besides the code."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"environment": files.environment(), **numbers}, indent=1) + "\n")


def write_plot(races: Sequence[Race], path: Path) -> None:
    """Draw, for each task, each contender's speed relative to Theano's C code."""
    # Matplotlib takes a second to import, and needs a display by default.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.4 * len(races)), layout="constrained")
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
    _save(figure, path)


def write_plot_of_starts(model: str, starts: Sequence[Start], path: Path) -> None:
    """Draw a stacked bar for each start."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.5), layout="constrained")
    names = [f"{start.side}, {start.cache}" for start in starts]
    left = [0.0] * len(starts)
    for part in PARTS:
        widths = [start.wall[part] for start in starts]
        axes.barh(names, widths, left=left, label=part)
        left = [before + width for before, width in zip(left, widths)]
    axes.invert_yaxis()
    axes.set_xlabel(f"seconds to the first result of {model}")
    axes.legend()
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


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
@click.option("--device", default="opencl", show_default=True, help="Device, named as in the flag optdb.device.")
@click.option(
    "--repeat", type=click.IntRange(min=1), default=15, show_default=True, help="Number of turns of each contender."
)
@click.option("--cold", "cold_model", metavar="MODEL", type=cli.MODEL_NAME, help="Measure the start of this model.")
@click.option("--timeout", type=float, help="Timeout of a start, in seconds.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write all numbers to this file."
)
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
    console = screen.console()
    if cold_model:
        try:
            starts = measure_starts(cold_model, device, timeout)
        except isolated.Failed as failure:
            raise click.ClickException(f"{cold_model}: {failure}") from None
        console.print(render_starts(cold_model, starts))
        numbers: dict[str, object] = {"model": cold_model, "starts": [asdict(start) for start in starts]}
    else:
        with theano.change_flags(floatX="float32"):
            races = _with_progress(_tasks(small, single, larger, chosen or MODELS, device), repeat)
        console.print(render(races))
        numbers = {"tasks": [asdict(race) for race in races]}
    if json_file:
        write_json(numbers, json_file)
        console.print(f"numbers: {json_file}", soft_wrap=True)
    if plot and cold_model:
        write_plot_of_starts(cold_model, starts, plot)
    elif plot:
        write_plot(races, plot)
    if plot:
        console.print(f"plot: {plot}", soft_wrap=True)


def _with_progress(tasks: Iterable[operations.Task], repeat: int) -> list[Race]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    races = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("operations and models", total=None)
        for race in measure(tasks, repeat):
            races.append(race)
            # Printed at once, because a long run may be stopped before its table.
            medians = ", ".join(f"{name} {race.median(name) * 1000:.2f} ms" for name in race.seconds)
            progress.console.print(f"{race.task}: {medians}", highlight=False, soft_wrap=True)
            progress.update(bar, description=f"{race.task}: done")
    return races


#: The sides whose starts are compared.
SIDES = ("device", "Theano C", "Theano alone")


def measure_starts(name: str, device: str = "opencl", timeout: float | None = None) -> list[Start]:
    """Start a model twice on each of `SIDES`, up to the result of one training step."""
    flags = {
        "device": f"optdb.topo=True,optdb.device={device}",
        "Theano C": "optdb.topo=True",
        "Theano alone": "optdb.topo=False,optdb.clinker=False",
    }
    return starts.measure(name, {side: flags[side] for side in SIDES}, calls=1, timeout=timeout)


if __name__ == "__main__":
    main()

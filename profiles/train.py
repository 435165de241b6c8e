"""Compares training on the device with training on the host: ``python -m profiles.train [MODELS]``.

If a model is chaotic, it is trained a second time with settings that make it less chaotic (see ``training``). The exit
status is 0 if, for each model, device and host agreed in the first or the second training.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from profiles import cli, files, models, terminal
from profiles.training import CHAOTIC, DIFFERS, FAILS, SAME, TOLERANCE, Comparison, Settings, compare

SHOWN = 6
"""Ops that are named for each reason to stay on the host; --json has all of them."""

STYLES = {SAME: "green", CHAOTIC: "yellow", DIFFERS: "bold red", FAILS: "bold red"}


def compare_all(names: Sequence[str], one: Callable[[str], Comparison]) -> list[Comparison]:
    """Compare models one after the other, with a progress bar on standard error."""
    comparisons = []
    with terminal.progress() as progress:
        task = progress.add_task("", total=len(names))
        for name in names:
            progress.update(task, description=name)
            if not progress.console.is_terminal:
                print(f"{name}: training on both sides", file=sys.stderr, flush=True)
            comparisons.append(one(name))
            progress.advance(task)
            # Print each result at once, because a long run may be stopped before the tables are printed.
            for trained in with_calm(comparisons[-1:]):
                line = f"{described(trained)}: {trained.verdict}"
                progress.console.print(line, style=STYLES[trained.verdict], highlight=False)
    return comparisons


def with_calm(comparisons: Sequence[Comparison]) -> Iterator[Comparison]:
    """Yield each comparison and, if it was repeated with calmer settings, the repetition."""
    for comparison in comparisons:
        yield comparison
        if comparison.calm is not None:
            yield comparison.calm


def described(comparison: Comparison) -> str:
    """Return a text with the model's name, floatX and the sizes that were replaced."""
    sizes = "".join(f", {name} {size:g}" for name, size in comparison.sizes.items())
    return f"{comparison.model}, {comparison.floatX}{sizes}"


def render(comparisons: Sequence[Comparison], settings: Settings) -> Table:
    """Return the table of models."""
    columns = ("first step", "largest", "nudged", "moved", "on device", "on host", "transfers", "kB", "ms")
    table = terminal.table(
        *("model", *columns, "verdict"),
        left=("model", "verdict"),
        title=f"{settings.steps} training steps on the device and on the host",
        caption="differences are relative to the largest number of an output; nudged: change of the host's values "
        "if the first values change by some units in the last place; moved: change of the values from the "
        "first step to the last; ms: median of a step, host / device. The row below a chaotic model, with "
        "calmer settings, decides",
    )
    for comparison in with_calm(comparisons):
        host, device = comparison.host, comparison.device
        if host is None or device is None:
            table.add_row(described(comparison), *["-"] * 9, Text(FAILS, style=STYLES[FAILS]))
            continue
        steps = comparison.differences()
        table.add_row(
            described(comparison),
            f"{steps[0]:.0e}",
            f"{max(steps):.0e}",
            f"{max(comparison.chaos()):.0e}",
            f"{comparison.moved():.0e}",
            *map(str, (device.on_device, device.on_host, device.transfers, device.nbytes // 1000)),
            f"{host.step * 1000:.1f} / {device.step * 1000:.1f}",
            Text(comparison.verdict, style=STYLES[comparison.verdict]),
        )
    return table


def render_stayed(comparisons: Sequence[Comparison]) -> Table:
    """Return a table of the nodes that were left on the host, with a row for each op and reason."""
    table = Table(title="Nodes that stayed on the host", show_lines=True)
    table.add_column("model")
    table.add_column("because", overflow="fold")
    table.add_column("ops", overflow="fold")
    table.add_column("nodes", justify="right")
    for comparison in comparisons:
        by_reason: dict[str, list[tuple[str, int]]] = {}
        for op, why, count in comparison.device.stayed if comparison.device is not None else ():
            by_reason.setdefault(why, []).append((op, count))
        for why, ops in by_reason.items():
            named = [f"{op} ({count})" for op, count in ops[:SHOWN]]
            more = [f"{len(ops) - SHOWN} more"] if len(ops) > SHOWN else []
            table.add_row(comparison.model, why, ", ".join([*named, *more]), str(sum(count for _, count in ops)))
    return table


def numbers(comparisons: Sequence[Comparison]) -> dict[str, object]:
    """Return all numbers of a comparison except the outputs."""
    rows = []
    for comparison in with_calm(comparisons):
        row = {**asdict(comparison), "differences": comparison.differences(), "chaos": comparison.chaos()}
        row["calm"] = comparison.calm.verdict if comparison.calm is not None else None
        for side in filter(None, (row["host"], row["device"])):
            del side["outputs"], side["nudged"]
        row["verdict"] = comparison.verdict
        rows.append(row)
    return {"environment": files.environment(), "models": rows}


class Size(click.ParamType):
    """``name=number``, as a pair."""

    name = "size"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        """Convert ``name=number`` to a pair of name and number; reject any other text."""
        name, _, number = value.partition("=")
        size: float | None
        try:
            size = int(number) if number.isdigit() else float(number)
        except ValueError:
            size = None
        if not name.isidentifier() or size is None:
            self.fail(f"a size must be given as NAME=NUMBER, not {value!r}", param, ctx)
        return name, size


@click.command()
@click.argument("chosen", metavar="[MODELS]...", nargs=-1, type=cli.MODEL_NAME)
@terminal.count_option("--steps", 20, "Number of steps of each side.")
@terminal.device_option(what="Value of the flag optdb.device.")
@click.option(
    "--topo/--no-topo", default=True, show_default=True, help="Optimize with optdb's engine, or with Theano's."
)
@click.option("--floatX", "float_x", type=click.Choice(list(TOLERANCE)), default="float32", show_default=True)
@click.option("--timeout", type=float, help="Timeout of each side, in seconds.")
@click.option(
    "--size",
    "sizes",
    metavar="NAME=NUMBER",
    multiple=True,
    type=Size(),
    help="Replace a model's default size or learning rate.",
)
@click.option("--stayed/--no-stayed", default=True, show_default=True, help="List the nodes that stayed on the host.")
@terminal.json_option
def main(chosen: tuple, stayed: bool, json_file: Path | None, float_x: str, sizes: tuple, **options: Any) -> None:
    """Train MODELS (by default, all models) on the device and on the host, and compare the results."""
    settings = Settings(floatX=float_x, sizes=dict(sizes), **options)
    comparisons = compare_all(list(chosen) or models.known(), lambda name: compare(name, settings))
    console = terminal.console()
    console.print(render(comparisons, settings))
    if stayed and any(c.device is not None and c.device.stayed for c in comparisons):
        console.print(render_stayed(comparisons))
    for comparison in with_calm(comparisons):
        if comparison.error:
            console.print(Text(f"{comparison.model} fails {comparison.error}", style="bold red"))
    if json_file:
        terminal.write_json(numbers(comparisons), json_file)
    terminal.print_paths(numbers=json_file)
    sys.exit(0 if all(comparison.agrees for comparison in comparisons) else 1)


if __name__ == "__main__":
    main()

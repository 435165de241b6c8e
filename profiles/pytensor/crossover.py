"""Measures and plots from which size of a model a device is faster than PyTensor's default."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from profiles import terminal
from profiles.pytensor import cli, models, sides, speed
from profiles.pytensor.speed import Evaluation
from profiles.terminal import PICTURE

__all__ = ["crossing", "draw", "grid", "main", "render"]

#: The models that are measured by default; their work grows with their size.
DEFAULT_MODELS = ("radon", "logistic", "mixture", "factorization")


def grid(name: str, points: int) -> list[int]:
    """Return a geometric sequence of sizes, from a model's small size to its large size."""
    chosen = models.entry(name)
    step = math.log(chosen.large / chosen.small) / (points - 1)
    return [round(chosen.small * math.exp(step * i)) for i in range(points)]


def crossing(sizes: Sequence[int], ratios: Sequence[float]) -> float | None:
    """Return the size from which ratios are below one; None if the ratio at the largest size is not below one.

    Between two sizes, the logarithm of the ratio is interpolated linearly in the logarithm of the size.
    """
    if ratios[-1] >= 1:
        return None
    slower = [i for i, ratio in enumerate(ratios) if ratio >= 1]
    if not slower:
        return float(sizes[0])
    i = slower[-1]
    low, high = math.log(ratios[i]), math.log(ratios[i + 1])
    share = low / (low - high)
    return math.exp(math.log(sizes[i]) + share * (math.log(sizes[i + 1]) - math.log(sizes[i])))


def _series(
    evaluations: Sequence[Evaluation], clock: str, reference: str
) -> dict[tuple[str, str], tuple[list[int], list[float]]]:
    """Return, for each model and configuration, the sizes and the times relative to the reference."""
    references = {(row.model, row.size): row.ms(clock) for row in evaluations if row.side == reference}
    series: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for row in evaluations:
        if row.side != reference and (row.model, row.size) in references:
            sizes, ratios = series.setdefault((row.model, row.side), ([], []))
            sizes.append(row.size)
            ratios.append(row.ms(clock) / references[row.model, row.size])
    return series


def render(evaluations: Sequence[Evaluation], clock: str, reference: str = sides.DEFAULT) -> Table:
    """Return a table of the size from which a configuration is faster than the reference, for each model."""
    table = terminal.table(
        *("model", "side", "pays from", "unit", "ratio at the smallest", "at the largest"),
        left=("model", "side", "unit"),
        title=f"The size from which a side is faster than {reference}",
        caption=f"by the {clock} clock",
    )
    for (name, side), (sizes, ratios) in _series(evaluations, clock, reference).items():
        size = crossing(sizes, ratios)
        pays = "-" if size is None else f"{float(f'{size:.1g}'):,.0f}"
        table.add_row(name, side, pays, models.entry(name).unit, f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}")
    return table


def draw(evaluations: Sequence[Evaluation], clock: str, path: Path, reference: str = sides.DEFAULT) -> None:
    """Draw the ratio of times against the size, as a line for each model and configuration."""
    with terminal.drawing(path, (8, 4.5)) as (_, axes):
        for (name, side), (sizes, ratios) in _series(evaluations, clock, reference).items():
            style = "-" if side == sides.OPENCL else ":"
            axes.plot(sizes, ratios, style, marker="o", label=f"{name}, {side} ({models.entry(name).unit})")
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="size",
            ylabel=f"time relative to {reference} ({clock} clock)",
            title="An evaluation of logp and dlogp: a device pays off below the line",
        )
        axes.legend(fontsize=8)


@click.command()
@cli.models_argument
@cli.sides_option("evaluate", sides.DEFAULT, sides.OPENCL)
@terminal.count_option("--points", 6, "Number of sizes of each model.", least=2)
@click.option(
    "--clock", type=click.Choice(speed.CLOCKS), default="wall", show_default=True, help="Clock whose time is shown."
)
@click.option("--plot", "path", type=PICTURE, help="Draw the ratios into this file.")
@terminal.json_option
def main(
    names: tuple[str, ...], chosen: tuple[str, ...], points: int, clock: str, path: Path | None, json_file: Path | None
) -> None:
    """Measure MODELs at growing sizes; by default, four models whose work grows with their size."""
    left = cli.chosen_sides(chosen)
    console = terminal.console()
    evaluations: list[Evaluation] = []
    for name in names or DEFAULT_MODELS:
        for size in grid(name, points):
            evaluations += speed.measure(
                name, size, left, turns=3, failed=lambda message: click.echo(f"failed: {message}", err=True)
            )
        console.print(f"{name}: measured", highlight=False)
    console.print(render(evaluations, clock, left[0]))
    if path is not None:
        draw(evaluations, clock, path, left[0])
    terminal.write_json(evaluations, json_file)


if __name__ == "__main__":
    main()

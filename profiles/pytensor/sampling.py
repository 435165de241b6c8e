"""Compares the posterior means that pm.sample computes on a device and in PyTensor's default mode, with equal seeds.

The comparison is only possible for the models in `SIZES`, whose posteriors are well determined. For other models,
rounding errors grow with each step of the sampler, and chains diverge after several dozen draws. The command fails if a
mean differs by more than `TOLERANCE` times the larger of the variable's standard deviation and one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from profiles import isolated, terminal
from profiles.pytensor import cli, models, samplers, sides

__all__ = ["SIZES", "TOLERANCE", "Draws", "compare", "draw", "main", "render"]

TOLERANCE = 1e-6
#: Maps the name of a model to a size; data of this size determine the posterior well.
SIZES = {"ar": 500, "ordinal": 1000, "gp": 30}


@dataclass(frozen=True)
class Draws:
    """The largest difference of posterior means from the reference, and the CPU seconds to compile and sample."""

    model: str
    size: int
    side: str
    reference: str
    difference: float
    seconds: float
    reference_seconds: float

    @property
    def agrees(self) -> bool:
        """Whether posterior means are equal within rounding."""
        return self.difference <= TOLERANCE


def draw(name: str, size: int, side: str, draws: int, tune: int, seed: int = 17) -> dict[str, Any]:
    """Sample a model in one chain with PyMC; return the seconds, and the mean and deviation of each variable."""
    build = functools.partial(models.build, name, size)
    return samplers.draw_from(build, "pymc", side, draws, tune, seed, chains=1)


def compare(
    name: str,
    size: int,
    side: str = sides.OPENCL,
    reference: str = sides.DEFAULT,
    draws: int = 200,
    tune: int = 200,
    run: Callable[..., dict[str, Any]] = isolated.call,
) -> Draws:
    """Sample a model in two configurations with the same seed; keep `draws` draws after `tune` tuning draws."""
    expected, computed = (
        run("profiles.pytensor.sampling:draw", name, size, each, draws, tune) for each in (reference, side)
    )
    difference = samplers.difference(expected, computed, least_deviation=1.0)
    return Draws(name, size, side, reference, difference, computed["cpu_s"], expected["cpu_s"])


def render(compared: Sequence[Draws]) -> Table:
    """Return a table of models."""
    table = terminal.table(
        *("model", "size", "side", "means differ by", "CPU s", "reference, CPU s", ""),
        left=("model", "side", ""),
        title="pm.sample, the same seed",
        caption=f"a mean that differs by at most {TOLERANCE:.0e} agrees",
    )
    for row in compared:
        table.add_row(
            *(row.model, f"{row.size:,}", row.side, f"{row.difference:.0e}"),
            *(f"{row.seconds:.1f}", f"{row.reference_seconds:.1f}"),
            "[green]agrees[/]" if row.agrees else "[red]differs[/]",
        )
    return table


@click.command()
@click.argument("names", metavar="[MODEL]...", nargs=-1, type=click.Choice(list(SIZES)))
@cli.side_option
@click.option(
    "--reference", type=click.Choice(list(sides.SIDES)), default=sides.DEFAULT, show_default=True, help="With what."
)
@terminal.count_option("--draws", 200, "Number of draws to keep.", least=2)
@terminal.count_option("--tune", 200, "Number of tuning draws.", least=0)
@terminal.json_option
def main(names: tuple[str, ...], side: str, reference: str, draws: int, tune: int, json_file: Path | None) -> None:
    """Sample MODELs; the default models are ar, ordinal and gp."""
    cli.chosen_sides([reference, side])
    console = terminal.console()
    compared = []
    for name in names or SIZES:
        try:
            compared.append(compare(name, SIZES[name], side, reference, draws, tune))
        except isolated.Failed as failure:
            raise click.ClickException(f"{name}: {failure}") from None
        console.print(f"{name}: {'agrees' if compared[-1].agrees else 'does not agree'}", highlight=False)
    console.print(render(compared))
    terminal.write_json(compared, json_file)
    sys.exit(0 if all(row.agrees for row in compared) else 1)


if __name__ == "__main__":
    main()

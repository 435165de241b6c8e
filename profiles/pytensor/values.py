"""Compares the values of logp and dlogp of PyMC models on a device with those of PyTensor's default mode, in float64.

Each model is evaluated at three points near its initial point. Each of the two configurations runs in a separate
process. A difference is relative to the largest number of the array that the default mode returns. The command fails if
a difference exceeds `TOLERANCE`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.table import Table

from profiles import isolated, terminal
from profiles.pytensor import cli, densities, sides

__all__ = ["TOLERANCE", "Comparison", "compare", "main", "render"]

TOLERANCE = 1e-10


@dataclass(frozen=True)
class Comparison:
    """The largest relative differences from the reference; infinite if computing failed with `failure`."""

    model: str
    size: int
    side: str
    reference: str
    logp: float
    dlogp: float
    failure: str = ""

    @property
    def agrees(self) -> bool:
        """Whether values are equal within rounding."""
        return max(self.logp, self.dlogp) <= TOLERANCE


def compare(
    name: str,
    size: int,
    side: str = sides.OPENCL,
    reference: str = sides.DEFAULT,
    timeout: float | None = None,
    run: Callable[..., list] = isolated.call,
) -> Comparison:
    """Evaluate a model in two configurations, each of which may take `timeout` seconds."""
    values = []
    for each in (reference, side):
        try:
            values.append(run("profiles.pytensor.densities:evaluate", name, size, each, timeout=timeout))
        except isolated.Failed as failure:
            infinite = float("inf")
            return Comparison(name, size, side, reference, infinite, infinite, f"{each}: {failure}")
    logp, dlogp = (
        max(densities.difference(expected[part], computed[part]) for expected, computed in zip(*values, strict=True))
        for part in (0, 1)
    )
    return Comparison(name, size, side, reference, logp, dlogp)


def render(comparisons: Sequence[Comparison]) -> Table:
    """Return a table of models."""
    table = terminal.table(
        *("model", "size", "side", "reference", "logp", "dlogp", ""),
        left=("model", "side", "reference", ""),
        title="logp and dlogp, relative differences from the reference",
        caption=f"at three points; at most {TOLERANCE:.0e} agrees",
    )
    for row in comparisons:
        verdict = "[green]agrees[/]" if row.agrees else "[red]failed[/]" if row.failure else "[red]differs[/]"
        table.add_row(
            *(row.model, f"{row.size:,}", row.side, row.reference, f"{row.logp:.0e}", f"{row.dlogp:.0e}", verdict)
        )
    return table


@click.command()
@cli.models_argument
@cli.sizes_option()
@cli.side_option
@click.option(
    "--reference", type=click.Choice(list(sides.SIDES)), default=sides.DEFAULT, show_default=True, help="With what."
)
@cli.timeout_option("a side")
@terminal.json_option
def main(
    names: tuple[str, ...], size: str, side: str, reference: str, timeout: float | None, json_file: Path | None
) -> None:
    """Compare the values of MODELs; by default, of all twelve models."""
    cli.chosen_sides([reference, side])
    console = terminal.console()
    comparisons = []
    for name, number in cli.sizes(cli.model_names(names), size).items():
        comparisons.append(compare(name, number, side, reference, timeout))
        console.print(f"{name}: {'agrees' if comparisons[-1].agrees else 'does not agree'}", highlight=False)
    console.print(render(comparisons))
    for row in comparisons:
        if row.failure:
            console.print(f"{row.model}: {row.failure}", markup=False, highlight=False)
    terminal.write_json(comparisons, json_file)
    sys.exit(0 if all(row.agrees for row in comparisons) else 1)


if __name__ == "__main__":
    main()

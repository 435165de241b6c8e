"""Compares sampling on a device with sampling in PyTensor's default mode, with PyMC and with nutpie.

The command compares the posterior means, and the times from the finished model to the draws. Times include all
compilation; CPU times include all threads and processes. The command fails if means differ by more than the sampling
error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from profiles import isolated, terminal
from profiles.pytensor import cli, sides
from profiles.pytensor.models import regression, series
from profiles.stopwatch import cpu_seconds

__all__ = ["MODELS", "SAMPLERS", "Sampling", "compare", "draw", "main", "render"]

#: The models and their sizes. A device is faster for "logistic", which has much data, and not for "garch", which is a
#: loop.
MODELS: dict[str, Callable[[], Any]] = {
    "logistic": lambda: regression.logistic(20_000, 20),
    "garch": lambda: series.garch(200),
}
SAMPLERS = ("pymc", "nutpie")
CHAINS = 2
#: Maximum difference of means, in standard errors of sampling.
STANDARD_ERRORS = 5.0


@dataclass(frozen=True)
class Sampling:
    """A sampler's results for a model in one configuration; times are seconds from the model to all draws.

    `difference` is the largest difference of a variable's posterior mean from that in the default mode, in standard
    deviations of the variable.
    """

    model: str
    sampler: str
    side: str
    wall_s: float
    cpu_s: float
    difference: float
    draws: int

    @property
    def agrees(self) -> bool:
        """Whether posterior means are equal within the sampling error."""
        return self.difference <= STANDARD_ERRORS * (2 / self.draws) ** 0.5


def draw(name: str, sampler: str, side: str, draws: int, tune: int, seed: int = 17) -> dict[str, Any]:
    """Sample a model; return the seconds, and the mean and the standard deviation of each variable."""
    return draw_from(MODELS[name], sampler, side, draws, tune, seed)


def draw_from(
    build: Callable[[], Any], sampler: str, side: str, draws: int, tune: int, seed: int, chains: int = CHAINS
) -> dict[str, Any]:
    """Build a model and sample it; return the seconds, and the mean and the standard deviation of each variable."""
    mode = sides.load(side)
    model = build()
    began, began_cpu = time.perf_counter(), cpu_seconds()
    trace = _DRAW[sampler](model, mode, draws, tune, seed, chains)
    seconds = {"wall_s": time.perf_counter() - began, "cpu_s": cpu_seconds() - began_cpu}
    values = {name: np.asarray(values) for name, values in trace.posterior.data_vars.items()}
    means = {name: np.ravel(array.mean(axis=(0, 1))).tolist() for name, array in values.items()}
    deviations = {name: np.ravel(array.std(axis=(0, 1))).tolist() for name, array in values.items()}
    return {**seconds, "means": means, "deviations": deviations}


def _by_pymc(model: Any, mode: str | None, draws: int, tune: int, seed: int, chains: int) -> Any:
    import pymc

    return pymc.sample(
        draws,
        tune=tune,
        chains=chains,
        cores=1,
        random_seed=seed,
        model=model,
        nuts_sampler="pymc",
        progressbar=False,
        compute_convergence_checks=False,
        compile_kwargs={} if mode is None else {"mode": mode},
    )


def _by_nutpie(model: Any, mode: str | None, draws: int, tune: int, seed: int, chains: int) -> Any:
    import nutpie

    from optdb.pytensor import compile_nutpie

    compiled = nutpie.compile_pymc_model(model) if mode is None else compile_nutpie(model, mode)
    return nutpie.sample(
        compiled, draws=draws, tune=tune, chains=chains, cores=1, seed=seed, progress_bar=False, save_warmup=False
    )


_DRAW = {"pymc": _by_pymc, "nutpie": _by_nutpie}


def compare(
    name: str,
    sampler: str,
    draws: int,
    tune: int,
    side: str = sides.OPENCL,
    run: Callable[..., dict[str, Any]] = isolated.call,
) -> list[Sampling]:
    """Sample a model in the default mode and in another one; keep `draws` draws per chain after `tune` others."""
    chosen = (sides.DEFAULT, side)
    results = [run("profiles.pytensor.samplers:draw", name, sampler, each, draws, tune) for each in chosen]
    reference = results[0]
    return [
        Sampling(name, sampler, each, result["wall_s"], result["cpu_s"], difference(reference, result), CHAINS * draws)
        for each, result in zip(chosen, results, strict=True)
    ]


def difference(reference: dict[str, Any], result: dict[str, Any], least_deviation: float = 0.0) -> float:
    """Return the largest difference of a mean, divided by the reference's deviation or `least_deviation`."""
    differences = []
    for name, means in reference["means"].items():
        deviations = np.maximum(reference["deviations"][name], least_deviation)
        differences.append(np.max(np.abs(np.subtract(result["means"][name], means)) / deviations))
    return float(max(differences))


def render(rows: Sequence[Sampling]) -> Table:
    """Return a table of models and samplers."""
    table = terminal.table(
        *("model", "sampler", "side", "s", "CPU s", "means differ by", ""),
        left=("model", "sampler", "side", ""),
        title="From a model to its draws",
        caption="differences of means in standard deviations",
    )
    for row in rows:
        verdict = "[green]agrees[/]" if row.agrees else "[red]differs[/]"
        seconds = (f"{row.wall_s:.1f}", f"{row.cpu_s:.1f}")
        table.add_row(row.model, row.sampler, row.side, *seconds, f"{row.difference:.0e}", verdict)
    return table


@click.command()
@click.argument("names", metavar="[MODEL]...", nargs=-1, type=click.Choice(list(MODELS)))
@click.option(
    "--sampler", "chosen", multiple=True, type=click.Choice(SAMPLERS), default=SAMPLERS, show_default=True, help="Who."
)
@cli.side_option
@terminal.count_option("--draws", 200, "Number of draws to keep.", least=2)
@terminal.count_option("--tune", 200, "Number of tuning draws.")
@terminal.json_option
def main(
    names: tuple[str, ...], chosen: tuple[str, ...], side: str, draws: int, tune: int, json_file: Path | None
) -> None:
    """Sample MODELs in two chains; the default models are logistic and garch."""
    cli.chosen_sides([sides.DEFAULT, side])
    console = terminal.console()
    rows: list[Sampling] = []
    for name in names or MODELS:
        for sampler in chosen:
            try:
                rows += compare(name, sampler, draws, tune, side)
            except isolated.Failed as failure:
                raise click.ClickException(f"{name}, {sampler}: {failure}") from None
            console.print(f"{name}, {sampler}: {'agrees' if rows[-1].agrees else 'does not agree'}", highlight=False)
    console.print(render(rows))
    terminal.write_json(rows, json_file)
    sys.exit(0 if all(row.agrees for row in rows) else 1)


if __name__ == "__main__":
    main()

"""Measures the time until a PyMC model's first evaluation, with empty and with full caches.

The result is the CPU seconds from the finished model to the first values of logp and dlogp. They include compilers that
the process starts.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.table import Table

from profiles import isolated, terminal
from profiles.pytensor import cli, sides
from profiles.stopwatch import cpu_seconds

__all__ = ["CACHES", "Start", "main", "measure", "render", "start"]

CACHES = ("cold", "warm")
"""Empty at the first start of a side; full of what the first start left at the second."""


@dataclass(frozen=True)
class Start:
    """The times of a new process with empty or full caches (one of `CACHES`).

    Times are CPU seconds: for imports, for building the model, and from then to the first values.
    """

    model: str
    size: int
    side: str
    cache: str
    imports_s: float
    model_s: float
    first_s: float


def start(name: str, size: int, side: str) -> list[float]:
    """Compile a model and evaluate it once, in a new process; return the seconds of a `Start`."""
    from profiles.pytensor import densities, models

    mode = sides.load(side)
    imported = cpu_seconds()
    model = models.build(name, size)
    [point] = densities.points_of(model, 1)
    built = cpu_seconds()
    function = model.logp_dlogp_function(ravel_inputs=True, mode=mode)._pytensor_function
    densities.Density(function, [point])(point)
    return [imported, built - imported, cpu_seconds() - built]


def caching_below(folder: Path) -> dict[str, str]:
    """Return environment variables that make all libraries store compiled code below a folder."""
    return {
        "PYTENSOR_FLAGS": f"base_compiledir={folder / 'pytensor'}",
        "NUMBA_CACHE_DIR": str(folder / "numba"),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "POCL_CACHE_DIR": str(folder / "pocl"),
        "XDG_CACHE_HOME": str(folder / "xdg"),
        "CUDA_CACHE_PATH": str(folder / "cuda"),
    }


def measure(
    name: str,
    size: int,
    side: str,
    repeat: int = 1,
    timeout: float | None = None,
    run: Callable[..., list[float]] = isolated.call,
) -> list[Start]:
    """Start a model with empty caches, and again with the filled caches; return the medians for both cases."""
    seconds: dict[str, list[list[float]]] = {cache: [] for cache in CACHES}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(prefix="optdb-start-") as folder:
            for cache in CACHES:
                env = caching_below(Path(folder))
                seconds[cache].append(run("profiles.pytensor.starts:start", name, size, side, env=env, timeout=timeout))
    return [
        Start(name, size, side, cache, *(statistics.median(part) for part in zip(*runs, strict=True)))
        for cache, runs in seconds.items()
    ]


def render(starts: Sequence[Start], reference: str = sides.DEFAULT) -> Table:
    """Return a table of models with the seconds for each configuration and cache, and the ratios to the reference."""
    by_model: dict[tuple[str, int], dict[tuple[str, str], float]] = {}
    for start in starts:
        by_model.setdefault((start.model, start.size), {})[start.side, start.cache] = start.first_s
    columns = [(side, cache) for cache in CACHES for side in dict.fromkeys(row.side for row in starts)]
    compared = [column for column in columns if column[0] != reference]
    table = Table(
        title="From a model to its first evaluation",
        caption=f"CPU seconds with child processes; sooner: {reference}'s seconds by the side's",
        show_footer=True,
    )
    table.add_column("model", footer="geometric mean")
    for heading in ("size", *(f"{side}, {cache}" for side, cache in columns)):
        table.add_column(heading, justify="right")
    for column in compared:
        ratios = [ratio for row in by_model.values() if (ratio := _sooner(row, column, reference))]
        footer = f"{statistics.geometric_mean(ratios):.1f}x" if ratios else "-"
        table.add_column(f"{column[0]} sooner, {column[1]}", justify="right", footer=footer)
    for (name, size), row in by_model.items():
        seconds = [f"{row[column]:.2f}" if column in row else "-" for column in columns]
        sooner = [_sooner(row, column, reference) for column in compared]
        table.add_row(name, f"{size:,}", *seconds, *(f"{ratio:.1f}x" if ratio else "-" for ratio in sooner))
    return table


def _sooner(seconds: Mapping[tuple[str, str], float], column: tuple[str, str], reference: str) -> float | None:
    """Return the reference's time divided by a column's time, with the same cache; None if either time is missing."""
    theirs, ours = seconds.get((reference, column[1])), seconds.get(column)
    return None if theirs is None or ours is None else theirs / ours


@click.command()
@cli.models_argument
@cli.sizes_option()
@cli.sides_option("compile", sides.DEFAULT, sides.OPENCL, "jax")
@terminal.count_option("--repeat", 1, "Number of runs; the median is shown.")
@cli.timeout_option("a start")
@terminal.json_option
def main(
    names: tuple[str, ...],
    size: str,
    chosen: tuple[str, ...],
    repeat: int,
    timeout: float | None,
    json_file: Path | None,
) -> None:
    """Start MODELs (by default, all twelve models) in each configuration."""
    left = cli.chosen_sides(chosen)
    console = terminal.console()
    starts: list[Start] = []
    for name, number in cli.sizes(cli.model_names(names), size).items():
        for side in left:
            try:
                starts += measure(name, number, side, repeat, timeout)
            except isolated.Failed as failure:
                click.echo(f"failed: {name}, {side}: {failure}", err=True)
        console.print(f"{name}: started", highlight=False)
    console.print(render(starts, left[0]))
    terminal.write_json(starts, json_file)


if __name__ == "__main__":
    main()

"""Measures functions that draw random numbers and compute with them: ``python -m profiles.pytensor.draws``."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
import pytensor
import pytensor.tensor as pt
from rich.table import Table

from optdb.pytensor import opencl_mode
from profiles import terminal

__all__ = ["VARIABLES", "DrawTimes", "main", "measure"]

#: Random variables by name: For each distribution, PyTensor's function and the parameters.
VARIABLES: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "uniform": (pt.random.uniform, (0.0, 1.0)),
    "laplace": (pt.random.laplace, (0.0, 1.0)),
    "normal": (pt.random.normal, (0.0, 1.0)),
    "exponential": (pt.random.exponential, (1.0,)),
}
#: Number of untimed calls; they compile code and record commands.
_WARM_UP = 6


@dataclass(frozen=True)
class DrawTimes:
    """Median CPU milliseconds of a call in the default mode, and in OPENCL with draws on host and device."""

    variable: str
    default_ms: float
    host_ms: float
    device_ms: float


def measure(variable: str, length: int = 10**6, turns: int = 15, device: str | None = None) -> DrawTimes:
    """Call a function of a random variable in all modes in turn; to draw on the host, mode OPENCL uses PCG64DXSM."""
    modes = [
        (None, np.random.PCG64),
        (opencl_mode(device), np.random.PCG64DXSM),
        (opencl_mode(device, random="device"), np.random.PCG64),
    ]
    functions = [_compiled(variable, length, mode, kind) for mode, kind in modes]
    times_ms: list[list[float]] = [[] for _ in functions]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function in functions:
            for _ in range(_WARM_UP):
                function()
        for _ in range(turns):
            for times, function in zip(times_ms, functions, strict=True):
                begun = time.process_time()
                function()
                times.append(1e3 * (time.process_time() - begun))
    return DrawTimes(variable, *map(statistics.median, times_ms))


def _compiled(variable: str, length: int, mode: Any, kind: Any) -> Any:
    rng = pytensor.shared(np.random.Generator(kind(1)))
    draw, parameters = VARIABLES[variable]
    following, draws = draw(*parameters, size=(length,), rng=rng, return_next_rng=True)
    return pytensor.function([], pt.log1p(draws**2).sum(), updates={rng: following}, mode=mode)


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, type=click.Choice(list(VARIABLES)))
@click.option("--length", default=10**6, show_default=True, help="The number of draws.")
@terminal.count_option("--turns", 15, "The median counts.")
@click.option("--device", help="A device, as the flag optdb.device names it; by default, the likely fastest one.")
def main(names: tuple[str, ...], length: int, turns: int, device: str | None) -> None:
    """Measure the CPU milliseconds of a call that draws numbers x, and computes the sum of log(1 + x^2)."""
    table = Table("variable", "default", "drawn on the host", "drawn on the device")
    for name in names or VARIABLES:
        times = measure(name, length, turns, device)
        table.add_row(name, *(f"{ms:.2f}" for ms in (times.default_ms, times.host_ms, times.device_ms)))
    terminal.console().print(table)


if __name__ == "__main__":
    main()

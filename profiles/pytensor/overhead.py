"""Measures a call that computes almost nothing: ``python -m profiles.pytensor.overhead``."""

from __future__ import annotations

import statistics
import time
import warnings
from dataclasses import dataclass

import click
import numpy as np
import pytensor
import pytensor.tensor as pt
from rich.table import Table

from optdb.pytensor import TooSmallWarning, opencl_mode
from profiles import terminal

__all__ = ["Overhead", "main", "measure"]

#: The length of the vector, which is that of a small model's vector of parameters.
LENGTH = 5
#: Number of calls that build the plan before the measurement, and number of calls in each measurement.
WARM_UP, CALLS = 50, 200


@dataclass(frozen=True)
class Overhead:
    """The median wall and CPU microseconds of a call that takes a vector and returns a scalar and a vector."""

    wall_us: float
    cpu_us: float


def measure(device: str | None = None, turns: int = 20) -> Overhead:
    """Call a function of a small vector many times; `device` is passed to `optdb.pytensor.opencl_mode`."""
    x = pt.vector("x")
    function = pytensor.function([x], [x.sum(), 2 * x], mode=opencl_mode(device))
    value = np.ones(LENGTH, x.dtype)
    walls, cpus = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TooSmallWarning)  # the vector is small on purpose
        for _ in range(WARM_UP):
            function(value)
        for _ in range(turns):
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(CALLS):
                function(value)
            walls.append(1e6 * (time.perf_counter() - wall) / CALLS)
            cpus.append(1e6 * (time.process_time() - cpu) / CALLS)
    return Overhead(statistics.median(walls), statistics.median(cpus))


@click.command()
@click.option(
    "--device", help="Device, named as in the flag optdb.device; by default, the one that is probably fastest."
)
@terminal.count_option("--turns", 20, "Number of runs; the median is shown.")
def main(device: str | None, turns: int) -> None:
    """Measure the time of a call that computes almost nothing."""
    found = measure(device, turns)
    table = Table("microseconds of the clock", "of the processors")
    table.add_row(f"{found.wall_us:.1f}", f"{found.cpu_us:.1f}")
    terminal.console().print(table)


if __name__ == "__main__":
    main()

"""Compares values, gradients and times of many small models in modes OPENCL, OPENCL_AUTO and PyTensor's default.

Each model is evaluated in a separate process, in which the three modes take turns. The fastest measurement of each mode
counts. If a model has other data of another length, values are compared again with these data. The command fails if
values differ, if mode OPENCL_AUTO takes more than `MOST_BY_CHOICE` times as long as the default, or if a model cannot
be evaluated.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from profiles import isolated, terminal
from profiles.pytensor import cli, densities, models
from profiles.pytensor.gallery import GALLERY, build

__all__ = ["MOST_BY_CHOICE", "TOLERANCE", "Outcome", "compare", "main", "measure", "render"]

TOLERANCE = 1e-9
#: Maximum ratio of the time in mode OPENCL_AUTO to the time in the default mode.
MOST_BY_CHOICE = 1.1
SIDES = ("default", "OPENCL", "OPENCL_AUTO")
#: Number of untimed calls, after which mode OPENCL_AUTO has chosen the device or the default.
_WARM_UP_CALLS = 60
#: The number of measurements of each mode, and the seconds of each measurement. Measurements are so short that other
#: programs do not disturb all of them.
_TURNS, _SECONDS_OF_TURN = 80, 0.004


@dataclass(frozen=True)
class Outcome:
    """The measurements of a model, by mode.

    `differences` has the largest relative differences of values and gradients from the default mode. Times are
    milliseconds per evaluation, as CPU time of all threads and as wall time. `choice` is what mode OPENCL_AUTO has
    chosen (the device or the default), and `on_host` is the number of nodes that mode OPENCL computes on the host.
    """

    model: str
    differences: dict[str, float]
    cpu_ms: dict[str, float]
    wall_ms: dict[str, float]
    choice: str = ""
    on_host: int = 0
    failure: str = ""

    def ratio(self, side: str) -> float:
        """Return the wall time of a mode divided by that of the default."""
        return self.wall_ms[side] / self.wall_ms["default"]

    @property
    def is_slower(self) -> bool:
        """Whether mode OPENCL_AUTO takes more CPU time and more wall time than the default; one may be noise."""
        times = (self.cpu_ms, self.wall_ms)
        return min(ms["OPENCL_AUTO"] / ms["default"] for ms in times) > MOST_BY_CHOICE

    @property
    def is_right(self) -> bool:
        """Whether values agree, times are acceptable, and the model could be evaluated."""
        return not self.failure and max(self.differences.values()) <= TOLERANCE and not self.is_slower


def measure(name: str, size: str = "small") -> dict[str, Any]:
    """Evaluate a model in PyTensor's default mode and in both modes of optdb; return the fields of an `Outcome`.

    Models of the gallery only have a large size if they are in `gallery.LARGE`.
    """
    import optdb.pytensor

    warnings.simplefilter("ignore")
    model, change = (
        build(name, size) if name in GALLERY else (models.build(name, getattr(models.entry(name), size)), None)
    )
    modes = {"default": None, "OPENCL": "OPENCL", "OPENCL_AUTO": "OPENCL_AUTO"}
    functions = {
        side: model.logp_dlogp_function(ravel_inputs=True, mode=mode)._pytensor_function for side, mode in modes.items()
    }
    points = densities.points_of(model, 3)
    differences = _differences(functions, points)
    if change is not None:
        change()
        changed = _differences(functions, points)
        differences = {side: max(found, changed[side]) for side, found in differences.items()}
    cpu_ms, wall_ms = _times(functions, points)
    report = optdb.pytensor.explain(functions["OPENCL_AUTO"])
    return {
        "differences": differences,
        "cpu_ms": cpu_ms,
        "wall_ms": wall_ms,
        "choice": report.partition(": ")[2].partition(",")[0],
        "on_host": len(functions["OPENCL"].vm.jit_fn.host.reasons),
    }


def _differences(functions: dict[str, Callable[..., Any]], points: Sequence[Any]) -> dict[str, float]:
    """Return the largest differences from the default's values in each mode, before and after OPENCL_AUTO chooses."""
    found = dict.fromkeys(SIDES[1:], 0.0)
    for side in found:
        for number in range(_WARM_UP_CALLS):
            expected, computed = (functions[one](points[number % 3]) for one in ("default", side))
            worst = max(densities.difference(*pair) for pair in zip(expected, computed, strict=True))
            found[side] = max(found[side], worst)
    return found


def _times(functions: dict[str, Callable[..., Any]], points: Sequence[Any]) -> tuple[dict[str, float], ...]:
    """Return the CPU and the wall milliseconds of a call in the fastest measurement of each mode."""
    counts: dict[str, int] = {}
    for side, function in functions.items():
        begin = time.perf_counter()
        for number in range(_WARM_UP_CALLS):
            function(points[number % 3])
        once_s = (time.perf_counter() - begin) / _WARM_UP_CALLS
        counts[side] = max(1, round(_SECONDS_OF_TURN / once_s))
    taken: dict[str, list[tuple[float, float]]] = {side: [] for side in functions}
    for turn in range(_TURNS):
        for side in SIDES if turn % 2 else reversed(SIDES):
            function, count = functions[side], counts[side]
            cpu, wall = time.process_time(), time.perf_counter()
            for number in range(count):
                function(points[number % 3])
            taken[side].append((1e3 * (time.process_time() - cpu) / count, 1e3 * (time.perf_counter() - wall) / count))
    return tuple({side: min(pair[part] for pair in taken[side]) for side in taken} for part in (0, 1))


def compare(
    name: str, size: str = "small", timeout: float | None = None, run: Callable[..., Any] = isolated.call
) -> Outcome:
    """Measure a model in a separate process."""
    try:
        return Outcome(name, **run("profiles.pytensor.breadth:measure", name, size, timeout=timeout))
    except isolated.Failed as failure:
        return Outcome(name, {}, {}, {}, failure=str(failure))


def render(outcomes: Sequence[Outcome]) -> Table:
    """Return a table of models."""
    table = terminal.table(
        *("model", "difference", "default", "OPENCL", "ratio", "OPENCL_AUTO", "ratio", "keeps", "on the host"),
        left=("model", "keeps"),
        title="An evaluation of logp and dlogp, beside PyTensor's default",
        caption=f"milliseconds and ratios of the clock; differences of at most {TOLERANCE:.0e} agree",
    )
    for row in outcomes:
        if row.failure:
            table.add_row(row.model, "failed", *"-" * 7)
            continue
        device, auto = (f"{row.ratio(side):.2f}" for side in SIDES[1:])
        default, opencl, chosen = (f"{row.wall_ms[side]:.3g}" for side in SIDES)
        worst = f"{max(row.differences.values()):.0e}"
        table.add_row(row.model, worst, default, opencl, device, chosen, auto, row.choice, str(row.on_host))
    return table


@click.command()
@click.argument("names", metavar="[MODEL]...", nargs=-1, type=click.Choice([*models.MODELS, *GALLERY]))
@cli.sizes_option(what="Size of the data of the twelve models, and of those with missing data.")
@cli.timeout_option("a model")
@terminal.json_option
def main(names: tuple[str, ...], size: str, timeout: float | None, json_file: Path | None) -> None:
    """Compare MODELs; by default, the twelve models of `profiles.pytensor.models`, and all models of the gallery."""
    cli.chosen_sides(["default", "opencl"])
    console = terminal.console()
    outcomes: list[Outcome] = []
    for name in names or [*models.MODELS, *GALLERY]:
        outcomes.append(compare(name, size, timeout))
        console.print(f"{name}: {'right' if outcomes[-1].is_right else 'not right'}", highlight=False)
        terminal.write_json(outcomes, json_file)
    console.print(render(outcomes))
    for row in outcomes:
        if row.failure:
            console.print(f"{row.model}: {row.failure}", markup=False, highlight=False)
    sys.exit(0 if all(row.is_right for row in outcomes) else 1)


if __name__ == "__main__":
    main()

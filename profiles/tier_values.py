"""Compares the values of the first tier with those of C code: ``python -m profiles.tier_values [MODELS]``.

All nodes of a model run in Python and then, with the same initial values of the shared variables, in C. A difference is
relative to the largest number of the array. Rounding alone may cause large differences. One column therefore shows the
difference of two runs in the first tier with initial floats that differ by a few units in the last place.
"""

from __future__ import annotations

import copy
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from profiles import isolated, models, starts, terminal
from profiles.cli import MODEL_NAME
from profiles.models.base import shared_variables
from profiles.training import nudged, value_difference

__all__ = ["TOLERANCE", "Compared", "compare", "render"]

#: Maximum difference between the tiers, for each floatX.
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}

#: A larger difference is also accepted if it is at most this multiple of the effect of nudges.
CHAOS = 4

#: The number of units in the last place by which a nudge changes a float.
_UNITS = 2


@dataclass(frozen=True)
class Compared:
    """The largest difference between the tiers for a model, and the name of the array that it occurs in (`where`).

    `chaos` is the difference that nudging arguments and shared variables makes in the first tier. `in_python` is the
    number of nodes that the first tier runs in Python, and `in_c` the number that run in C afterwards.
    """

    model: str
    floatX: str  # noqa: N815  (Theano's name)
    difference: float
    where: str
    chaos: float
    in_python: int
    in_c: int

    @property
    def agrees(self) -> bool:
        """Whether the difference is at most the tolerance, or at most `CHAOS` times the effect of nudges."""
        return self.difference <= max(TOLERANCE[self.floatX], CHAOS * self.chaos)


def measure(name: str) -> tuple[float, str, float, int, int]:
    """Compute a model in both tiers; return the numbers of a `Compared` in the order of the fields."""
    import theano

    import optdb

    model = models.build(name)
    variables = shared_variables(model)
    values = [copy.deepcopy(var.get_value()) for var in variables]
    let_compile = _hold_compilers()
    function = theano.function(model.inputs, model.outputs, updates=model.updates, on_unused_input="ignore")
    first_tier = optdb.tier(function)

    def call(change: Callable[[Any], Any] = copy.deepcopy) -> list[Any]:
        for variable, value in zip(variables, values, strict=True):
            variable.set_value(change(value))
        outputs = function(*map(change, model.data))
        return [np.array(out) for out in outputs or []] + [copy.deepcopy(var.get_value()) for var in variables]

    in_python, from_nudged = call(), call(lambda value: nudged(copy.deepcopy(value), 0, _UNITS))
    let_compile()
    tier = optdb.wait(function)
    if tier.modules_failed:
        raise RuntimeError(f"{tier.modules_failed} modules of {name} were not built")
    in_c = call()
    names = [f"output {number}" for number in range(len(in_c) - len(variables))]
    names += [f"shared variable {var.name or number}" for number, var in enumerate(variables)]
    largest, where = max(zip(map(value_difference, in_python, in_c), names, strict=True), default=(0.0, ""))
    chaos = max(map(value_difference, in_python, from_nudged), default=0.0)
    return largest, where, chaos, first_tier.in_python, tier.in_c


def _hold_compilers() -> Callable[[], None]:
    """Make background compilers wait; return a function that lets the compilers start."""
    from optdb.host.theano.clinker.tiers.background import background

    may_begin, run = threading.Event(), background.run

    def run_later(*args: Any, **options: Any) -> bool:
        may_begin.wait()
        return run(*args, **options)

    background.run = run_later
    return may_begin.set


def compare(name: str, dtype: str, timeout: float | None = None) -> Compared:
    """Compare the tiers of a model in a separate process."""
    with tempfile.TemporaryDirectory(prefix="optdb-tiers-") as made:
        # Use an empty compiledir, because the first tier would otherwise use modules that are already built.
        flags = f"floatX={dtype},optdb.topo=True,optdb.tiered=True,base_compiledir={Path(made, 'theano')}"
        env = starts.caching_below(Path(made))
        numbers = isolated.call("profiles.tier_values:measure", name, flags=flags, env=env, timeout=timeout)
    return Compared(name, dtype, *numbers)


def render(compared: Sequence[Compared]) -> Table:
    """Return a table of models."""
    table = terminal.table(
        *("model", "floatX", "difference", "by a nudge", "nodes in Python", "then in C", "largest at"),
        left=("model", "floatX", "largest at"),
        title="Values of the first tier compared with C code",
    )
    for one in compared:
        style = None if one.agrees else "red"
        numbers = f"{one.difference:.1e}", f"{one.chaos:.1e}", str(one.in_python), str(one.in_c)
        table.add_row(one.model, one.floatX, *numbers, one.where, style=style)
    return table


@click.command()
@click.argument("chosen", metavar="[MODELS]...", nargs=-1, type=MODEL_NAME)
@click.option("--floatX", "dtypes", multiple=True, type=click.Choice(list(TOLERANCE)), help="Can be repeated.")
@click.option("--timeout", default=3600.0, show_default=True, help="Timeout of a model, in seconds.")
def main(chosen: tuple[str, ...], dtypes: tuple[str, ...], timeout: float) -> None:
    """Compare the values that MODELS have in both tiers; by default, all models of the zoo are compared.

    The exit status is 1 if a model fails, or if a difference exceeds both the tolerance (1e-6 in float32, 1e-12 in
    float64) and the effect of rounding.
    """
    compared, failures = [], []
    for name in chosen or models.known():
        for dtype in dtypes or tuple(TOLERANCE):
            try:
                compared.append(compare(name, dtype, timeout))
            except isolated.Failed as failure:
                failures.append(f"{name}, {dtype}: {failure}")
                click.echo(failures[-1], err=True)
                continue
            click.echo(f"{name}, {dtype}: {compared[-1].difference:.1e}", err=True)
    terminal.console().print(render(compared))
    sys.exit(1 if failures or not all(one.agrees for one in compared) else 0)


if __name__ == "__main__":
    main()

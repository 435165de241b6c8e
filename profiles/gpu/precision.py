"""Measures the errors of training for each precision of matrix products: ``python -m profiles.gpu.precision [MODELS]``.

Each model is trained for some steps on a device with each value of ``optdb.matmul_precision``, and in float64. An error
is the largest difference from the numbers in float64, relative to the largest number of the array. If a device has no
tensor cores that optdb can use, all precisions give the same results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import theano
from rich.table import Table

import optdb
from profiles import models, terminal
from profiles.gpu.steps import SIZES, SMALL
from profiles.models.base import shared_variables
from profiles.steps_of_simulators import compiled
from profiles.training import difference

PRECISIONS = ("highest", "high", "default")
#: The sizes in `profiles.gpu.steps`, except that two models are smaller; their matrix products still use tensor cores.
SIZES_TO_COMPARE = {**SIZES, "mlp 4096": {"width": 2048, "batch": 512}, "lstm": {**SIZES["lstm"], "steps": 10}}
#: Sizes for the curves.
_CURVE_SIZES: dict[str, Any] = {"n": 1, "width": 32, "batch": 64, "size": 32}


@dataclass(frozen=True)
class Trained:
    """The result of a training: the cost at each step, and how much each shared variable changed."""

    costs: list[float]
    steps: list[np.ndarray]


@dataclass(frozen=True)
class Errors:
    """The largest relative errors of a training with one precision."""

    model: str
    precision: str
    cost: float
    parameters: float


def trained(
    function: Any, variables: Sequence[Any], values: Sequence[Any], data: Sequence[Any], device: str, steps: int
) -> Trained:
    """Set the shared variables to the given values, and run some training steps."""
    for variable, value in zip(variables, values, strict=True):
        variable.set_value(value.astype(variable.dtype) if _is_float(value) else value)
    with optdb.SimulatorOCL(function, device) as sim:
        costs = [float(np.ravel(sim(*data)[0])[0]) for _ in range(steps)]
        after = [np.array(sim.get(variable), float) for variable in variables if _is_float(variable.get_value())]
    before = [value.astype(float) for value in values if _is_float(value)]
    return Trained(costs, [new - old for new, old in zip(after, before, strict=True)])


def errors(name: str, sizes: dict[str, Any], device: str, steps: int) -> Iterator[Errors]:
    """Train a model with each precision, and yield the errors."""
    model = models.build(name.split()[0], **sizes)
    variables = shared_variables(model)
    values = [variable.get_value() for variable in variables]
    with theano.change_flags(floatX="float64"):
        wide = models.build(name.split()[0], **sizes)
        data = [value.astype("float64") if _is_float(value) else value for value in model.data]
        exact = trained(compiled(wide), shared_variables(wide), values, data, device, steps)
    function = compiled(model)
    for precision in PRECISIONS:
        with theano.change_flags(**{"optdb.matmul_precision": precision}):
            seen = trained(function, variables, values, model.data, device, steps)
        yield errors_of(name, precision, exact, seen)


def errors_of(name: str, precision: str, exact: Trained, seen: Trained) -> Errors:
    """Return the errors of a training compared with a training in float64."""
    cost = difference(np.array(exact.costs), np.array(seen.costs))
    return Errors(name, precision, cost, max(map(difference, exact.steps, seen.steps), default=0.0))


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f"


def curves(device: str, steps: int, sizes: dict[str, Any]) -> dict[str, list[float]]:
    """Train cifar_resnet with each precision, on new images at each step; return the costs."""
    costs: dict[str, list[float]] = {}
    model = models.build("cifar_resnet", **sizes)
    function = compiled(model)
    values = [variable.get_value() for variable in shared_variables(model)]
    for precision in PRECISIONS:
        for variable, value in zip(shared_variables(model), values, strict=True):
            variable.set_value(value)
        batches = _pictures(model, steps)
        with (
            theano.change_flags(**{"optdb.matmul_precision": precision}),
            optdb.SimulatorOCL(function, device) as sim,
        ):
            costs[precision] = [float(np.ravel(sim(*batch)[0])[0]) for batch in batches]
    return costs


def _pictures(model: models.Model, count: int) -> Iterator[list[np.ndarray]]:
    """Yield batches of noisy images with their labels; a net can learn to distinguish the classes."""
    rng = np.random.default_rng(0)
    pictures, labels = model.data
    classes = rng.normal(size=(int(labels.max()) + 1, *pictures.shape[1:]))
    for _ in range(count):
        drawn = rng.integers(0, len(classes), labels.shape)
        noise = rng.normal(size=pictures.shape)
        yield [(0.2 * classes[drawn] + noise).astype(pictures.dtype), drawn.astype(labels.dtype)]


def draw(costs: dict[str, list[float]], path: Path) -> None:
    """Draw a curve of the costs for each precision, and its relative difference from the first curve."""
    first = np.array(next(iter(costs.values())))
    with terminal.drawing(path, (7, 6), 2, sharex=True) as (_, (whole, apart)):
        for name, values in costs.items():
            whole.plot(values, label=name, linewidth=1)
            if values is not costs[next(iter(costs))]:
                apart.plot(np.abs(values - first) / np.abs(first), label=f"{name} beside highest", linewidth=1)
        whole.set(ylabel="cost", title="cifar_resnet for each precision of products")
        is_apart = any(not np.array_equal(values, first) for values in costs.values())
        apart.set(xlabel="step", ylabel="relative difference", yscale="log" if is_apart else "linear")
        whole.legend()
        apart.legend()


def _table(rows: Sequence[Errors]) -> Table:
    table = Table("model", "precision", "error of costs", "error of parameter updates", title="Errors by precision")
    for row in rows:
        table.add_row(row.model, row.precision, f"{row.cost:.1e}", f"{row.parameters:.1e}")
    return table


@click.command(help=__doc__.split("\n\n")[1])
@click.argument("names", nargs=-1, type=click.Choice(sorted(SIZES_TO_COMPARE)))
@terminal.device_option("gpu")
@terminal.count_option("--steps", 5, "Number of steps of each model.")
@click.option("--small", is_flag=True, help="Use the models' small sizes, for a quick test.")
@click.option("--curves", "picture", type=click.Path(path_type=Path), help="Draw training curves into this file.")
@terminal.count_option("--curve-steps", 200, "Number of steps of the curves.")
def main(names: tuple[str, ...], device: str, steps: int, small: bool, picture: Path | None, curve_steps: int) -> None:
    """Print the errors of training with each precision."""
    theano.config.floatX = "float32"
    if picture is not None:
        costs = curves(device, curve_steps, SMALL["cifar_resnet"] if small else _CURVE_SIZES)
        draw(costs, picture)
        for precision, values in costs.items():
            click.echo(f"{precision}: the cost goes from {values[0]:.4f} to {np.mean(values[-20:]):.4f}")
        if not names:
            return
    rows: list[Errors] = []
    for name in names or SIZES_TO_COMPARE:
        sizes = SMALL.get(name.split()[0], {}) if small else SIZES_TO_COMPARE[name]
        for row in errors(name, sizes, device, steps):
            rows.append(row)
            click.echo(f"{row.model}, {row.precision}: {row.cost:.1e} {row.parameters:.1e}", err=True)
    terminal.console().print(_table(rows))


if __name__ == "__main__":
    main()

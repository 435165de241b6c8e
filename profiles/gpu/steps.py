"""Measures the times of training steps on a GPU, and compares them with JAX: ``python -m profiles.gpu.steps [MODELS]``.

The first table has the mean milliseconds of a step if inputs stay on the device, in `call_n_times` and in JAX. The
second table has the milliseconds of calls with NumPy arguments. The number of commands counts merged commands as one,
and does not count commands that commit updates.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import click
import numpy as np
from rich.table import Table

import optdb
from optdb.device.plans.plan import Plan
from optdb.opencl.linking.planned_vm import PlannedVM
from profiles import models, terminal
from profiles.gpu import jax_nets
from profiles.report import geometric_mean
from profiles.steps_of_simulators import compiled

SIZES: dict[str, dict[str, Any]] = {
    "mlp": {"width": 512, "batch": 128},
    "mlp 4096": {"width": 4096, "batch": 4096},
    "gru30": {"width": 512, "batch": 128},
    "lstm": {"width": 512, "steps": 50, "batch": 64, "vocabulary": 10_000},
    "cifar_resnet": {"n": 3, "width": 16, "batch": 128, "size": 32},
    "cifar_resnet 64": {"n": 3, "width": 64, "batch": 128, "size": 32},
    "transformer": {"width": 512, "heads": 8, "tokens": 128, "batch": 32},
}
#: Sizes for a quick trial; models that are not listed have the default sizes of their builders.
SMALL: dict[str, dict[str, Any]] = {"cifar_resnet": {"n": 1}, "transformer": {"heads": 2}}
#: Names of the sizes that JAX's nets cannot derive from the shapes of parameters.
TOLD = ("n", "heads")
PRECISIONS = ("highest", "default")
#: Number of untimed calls: the first call is recorded, and the second call makes the plan.
_WARM_UP = 5
#: Maximum seconds of training until small launches are merged, whose kernels are built in the background.
_MOST_TRAINING_S = 120.0


@dataclass
class Step:
    """The times of a training step, in milliseconds.

    `resident` is the time of a step in a call of many steps, and `call` the time of a call with NumPy arguments.
    `queued` is the time per call when many asynchronous calls are begun before the first one is waited for. `of_jax`
    maps a precision to the times of JAX that correspond to `resident` and `call`. `difference` is the largest relative
    difference between the first costs in optdb and in JAX with float32 products.
    """

    name: str
    commands: int
    resident: float
    call: float
    async_returns: float
    async_done: float
    queued: float
    costs: list[float]
    of_jax: dict[str, tuple[float, float]] = field(default_factory=dict)
    difference: float = 0.0


def measured(name: str, sizes: dict[str, Any], device: str, repeat: int, training: float) -> Step:
    """Train a model for at least `training` seconds, and until the launches to merge are chosen; then measure it."""
    model = models.build(name.split()[0], **sizes)
    data = model.data
    with optdb.SimulatorOCL(compiled(model), device) as sim:
        costs = [float(sim(*data)[0]) for _ in range(_WARM_UP)]
        if training:
            settle(sim, lambda: sim.call_n_times(repeat, *data), training)
        plan = last_plan(sim)
        commands = 0 if plan is None else plan.enqueued
        call = _median_ms(lambda: sim(*data), repeat)
        resident = elapsed_ms(lambda: sim.call_n_times(repeat, *data)) / repeat
        returned, done = [], []
        pending: list[Any] = []
        for _ in range(repeat):
            begin = elapsed_ms(lambda: pending.append(sim.run_async(*data)))
            returned.append(begin)
            done.append(begin + elapsed_ms(pending.pop().wait))
        queued = elapsed_ms(lambda: [one.wait() for one in [sim.run_async(*data) for _ in range(repeat)]]) / repeat
    return Step(name, commands, resident, call, statistics.median(returned), statistics.median(done), queued, costs)


def settle(sim: optdb.SimulatorOCL, call: Callable[[], Any], least_s: float) -> None:
    """Call `call` for at least `least_s` seconds, and until the launches to merge are chosen."""
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < _MOST_TRAINING_S:
        call()
        plan = last_plan(sim)
        if elapsed >= least_s and (plan is None or plan.is_settled):
            return


def last_plan(sim: optdb.SimulatorOCL) -> Plan | None:
    """Return the plan of a simulator's last call; None if this call has no plan."""
    machine = sim._executable.run
    return machine.plans[-1] if isinstance(machine, PlannedVM) and machine.plans else None


def measure_jax(step: Step, sizes: dict[str, Any], repeat: int) -> None:
    """Time the same net in JAX; store JAX's times and the difference of the first costs in `step`."""
    import jax

    for precision in PRECISIONS:
        model = models.build(step.name.split()[0], **sizes)
        told = {name: value for name, value in sizes.items() if name in TOLD}
        with jax.default_matmul_precision(precision):
            train, state = jax_nets.trainer(model, **told)
            costs = []
            for _ in range(_WARM_UP):
                state, cost = train(state, *model.data)
                costs.append(float(cost))
            step.of_jax[precision] = _times_of_jax(train, state, model.data, repeat)
            click.echo(f"{step.name}, JAX {precision}: {step.of_jax[precision][0]:.2f} ms", err=True)
        if precision == "highest":
            step.difference = float(np.max(np.abs(np.subtract(costs, step.costs)) / np.abs(costs)))


def _times_of_jax(train: Callable[..., Any], state: Any, data: list[Any], repeat: int) -> tuple[float, float]:
    import jax

    kept = [state, None]

    def step(*arguments: Any) -> None:
        kept[:] = train(kept[0], *arguments)

    def many(*arguments: Any) -> None:
        for _ in range(repeat):
            step(*arguments)
        jax.block_until_ready(kept)

    def call() -> None:
        step(*data)
        float(kept[1])

    resident = [jax.numpy.asarray(value) for value in data]
    many(*resident)
    return elapsed_ms(lambda: many(*resident)) / repeat, _median_ms(call, repeat)


def _median_ms(call: Callable[[], Any], repeat: int) -> float:
    return statistics.median(elapsed_ms(call) for _ in range(repeat))


def elapsed_ms(call: Callable[[], Any]) -> float:
    """Return the milliseconds of a call."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def resident_table(steps: list[Step]) -> Table:
    """Return the table of steps with resident inputs."""
    columns = [f"JAX, {precision}" for precision in PRECISIONS if steps[0].of_jax]
    footers = (f"{geometric_mean(s.resident / s.of_jax[p][0] for s in steps):.2f}x" for p in PRECISIONS)
    table = Table("model", "commands", "optdb", title="inputs resident, ms", show_footer=bool(columns))
    for column, footer in zip(columns, footers, strict=False):
        table.add_column(column)
        table.add_column("ratio", footer=footer)
    if columns:
        table.add_column("costs differ by")
    for step in steps:
        row = [step.name, str(step.commands), f"{step.resident:.2f}"]
        for resident, _ in step.of_jax.values():
            row += [f"{resident:.2f}", f"{step.resident / resident:.2f}x"]
        table.add_row(*row, *([f"{step.difference:.1e}"] if columns else []))
    return table


def numpy_table(steps: list[Step]) -> Table:
    """Return the table of calls with NumPy arguments."""
    columns = [f"JAX, {precision}" for precision in PRECISIONS if steps[0].of_jax]
    table = Table("model", "call", *columns, "async returns", "async done", "queued", title="inputs of NumPy, ms")
    for step in steps:
        numbers = [step.call, *(call for _, call in step.of_jax.values())]
        numbers += [step.async_returns, step.async_done, step.queued]
        table.add_row(step.name, *(f"{number:.2f}" for number in numbers))
    return table


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(SIZES)))
@terminal.device_option("gpu")
@terminal.count_option("--repeat", 100, "Number of steps of each kind.")
@click.option(
    "--training",
    default=5.0,
    show_default=True,
    help="Minimum duration of the warm-up, in seconds: small launches are merged meanwhile.",
)
@click.option("--jax/--no-jax", default=find_spec("jax") is not None, help="Compare with JAX.")
@click.option("--small", is_flag=True, help="Use the models' small sizes, for a quick test.")
def main(names: tuple[str, ...], device: str, repeat: int, training: float, jax: bool, small: bool) -> None:
    """Measure training steps of the models NAMES; by default, of all models."""
    if jax and find_spec("jax") is None:
        raise click.UsageError("JAX is not installed. The cure: pip install jax, or --no-jax")
    steps = []
    for name in names or SIZES:
        sizes = SMALL.get(name.split()[0], {}) if small else SIZES[name]
        steps.append(measured(name, sizes, device, repeat, 0.0 if small else training))
        # Printed at once: JAX's compiler may take minutes for the next nets.
        click.echo(f"{name}: {steps[-1].resident:.2f} ms, {steps[-1].commands} commands", err=True)
        if jax:
            measure_jax(steps[-1], sizes, repeat)
    terminal.console().print(resident_table(steps), numpy_table(steps))


if __name__ == "__main__":
    main()

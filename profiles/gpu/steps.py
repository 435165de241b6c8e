"""What a training step takes on a GPU, by the product itself: ``python -m profiles.gpu.steps [MODELS]``.

Milliseconds: a call with arguments of NumPy that waits for its results; a step of `call_n_times`; `run_async` until it
returns and until the call is done; and a call of many in the queue. Commands are those of a step in which nothing
changes, without those that commit its updates.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import click
from rich.table import Table

import optdb
from optdb.opencl.planning import PlannedVM
from profiles import models, screen
from profiles.distributed import batches_of, compiled

SIZES: dict[str, dict[str, int]] = {
    "mlp": {"width": 512, "batch": 128},
    "gru30": {"width": 512, "batch": 128},
    "cifar_resnet": {"n": 3, "width": 16, "batch": 128},
    "lstm": {"width": 512, "steps": 50, "batch": 64, "vocabulary": 10_000},
}
#: Calls before the first that is timed: the first one is recorded, and the second one planned.
_WARM_UP = 5


def measured(name: str, sizes: dict[str, int], device: str, repeat: int) -> list[str]:
    """Return the row of a model."""
    function = compiled(models.build(name, **sizes))
    (data,) = batches_of(models.build(name, **sizes), 1)
    with optdb.SimulatorOCL(function, device) as sim:
        for _ in range(_WARM_UP):
            sim(*data)
        machine = sim._executable.run
        commands = machine.plans[-1].commands if isinstance(machine, PlannedVM) and machine.plans else 0
        call = _median_ms(lambda: sim(*data), repeat)
        step = _elapsed_ms(lambda: sim.call_n_times(repeat, *data)) / repeat
        returned, done = [], []
        for _ in range(repeat):
            pending: list[Any] = []
            begin = _elapsed_ms(lambda queue=pending: queue.append(sim.run_async(*data)))
            returned.append(begin)
            done.append(begin + _elapsed_ms(pending[0].wait))
        many = _elapsed_ms(lambda: [one.wait() for one in [sim.run_async(*data) for _ in range(repeat)]]) / repeat
    numbers = call, step, statistics.median(returned), statistics.median(done), many
    return [name, str(commands), *(f"{number:.2f}" for number in numbers)]


def _median_ms(call: Callable[[], Any], repeat: int) -> float:
    return statistics.median(_elapsed_ms(call) for _ in range(repeat))


def _elapsed_ms(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(SIZES)))
@click.option("--device", default="gpu", show_default=True, help="Which device.")
@click.option("--repeat", type=click.IntRange(min=1), default=20, show_default=True, help="Steps of each kind.")
@click.option("--small", is_flag=True, help="The models at their small sizes, to try whether it works.")
def main(names: tuple[str, ...], device: str, repeat: int, small: bool) -> None:
    """Measure training steps of the models NAMES, or of all."""
    table = Table("model", "commands", "call", "of many steps", "async returns", "async done", "of many async")
    for name in names or SIZES:
        table.add_row(*measured(name, {} if small else SIZES[name], device, repeat))
    screen.console().print(table)


if __name__ == "__main__":
    main()

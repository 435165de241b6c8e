"""Measures a training step without a C compiler: ``python -m profiles.without_compiler [MODELS]``.

Each model runs steps in a process with a compiler and in a process without a compiler (`cxx=`). Both processes use the
engine and one thread. A time is the number of CPU seconds of the fastest of several steps; the first step does not
count. With ``--small``, models have their default sizes.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import click
from rich.table import Table

from profiles import isolated, terminal
from profiles.first import ONE_THREAD, TRAINED_SIZES


@click.command()
@click.argument("models", nargs=-1)
@click.option("--small", is_flag=True, help="Use the models' default sizes.")
@terminal.count_option("--repeat", 10, "Number of steps after the first one.")
def main(models: tuple[str, ...], small: bool, repeat: int) -> None:
    """Compare the time of a training step of MODELS without a C compiler with that of C code."""
    table = Table("model", "C, ms", "without, ms", "ratio")
    ratios = []
    for name in models or tuple(TRAINED_SIZES):
        sizes = {} if small else TRAINED_SIZES.get(name, {})
        compiled, python = (_step_s(name, sizes, repeat, flags) for flags in ("", "cxx="))
        ratios.append(python / compiled)
        table.add_row(name, f"{compiled * 1e3:.2f}", f"{python * 1e3:.2f}", f"{ratios[-1]:.1f}")
    terminal.console().print(table)
    terminal.console().print(f"geometric mean: {statistics.geometric_mean(ratios):.1f}")


def _step_s(name: str, sizes: dict[str, int], repeat: int, flags: str) -> float:
    flags = ",".join(filter(None, [flags, "floatX=float32"]))
    return isolated.call("profiles.without_compiler:measure", name, sizes, repeat, flags=flags, env=ONE_THREAD)


def measure(name: str, sizes: dict[str, Any], repeat: int) -> float:
    """Return the CPU seconds of the fastest of several training steps of a model."""
    import theano

    import optdb
    from profiles.models import build

    model = build(name, **sizes)
    with optdb.enable():
        step = theano.function(model.inputs, model.outputs, updates=model.updates)
    step(*model.data)
    seconds = []
    for _ in range(repeat):
        start = time.process_time()
        step(*model.data)
        seconds.append(time.process_time() - start)
    return min(seconds)


if __name__ == "__main__":
    main()

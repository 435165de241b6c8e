"""The command line: ``python -m fuzzing.tiers``."""

from __future__ import annotations

import os

import click

from fuzzing.machines import run_processes
from fuzzing.runner import options


@click.command()
@options(runs=2000, steps=12, seed=0, processes=1, timeout=900.0)
def main(runs: int, steps: int, seed: int, processes: int, timeout: float) -> None:
    """Bring tiered functions into every state, and call them in threads and with interrupts.

    The exit status is 1 if a run differs. The first differing run of each process is printed as a program. The same
    seed draws the same steps, but threads alternate in another order each time.
    """
    flags = ",".join(filter(None, [os.environ.get("THEANO_FLAGS", ""), "gcc.cxxflags=-O0"]))
    run_processes("fuzzing.tiers.worker", runs, steps, seed, processes, timeout, {"THEANO_FLAGS": flags})


if __name__ == "__main__":
    main()

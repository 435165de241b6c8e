"""The command line: ``python -m fuzzing.pytensor``."""

from __future__ import annotations

import click

from fuzzing.machines import run_processes
from fuzzing.runner import options


@click.command()
@options(runs=500, steps=20, seed=0, processes=1, timeout=1800.0)
def main(runs: int, steps: int, seed: int, processes: int, timeout: float) -> None:
    """Use PyTensor's shared variables in functions of all modes alternately.

    The exit status is 1 if a run differs. The shortest differing run of each process is printed as a program.
    """
    run_processes("fuzzing.pytensor.worker", runs, steps, seed, processes, timeout)


if __name__ == "__main__":
    main()

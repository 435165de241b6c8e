"""The command line: ``python -m fuzzing.pytensor``."""

from __future__ import annotations

import functools

import click

from fuzzing.machines import Runs, report_runs, seeds
from fuzzing.runner import run_worker


@click.command()
@click.option("--runs", default=500, show_default=True, help="Number of runs.")
@click.option("--steps", default=20, show_default=True, help="Maximum number of steps of a run.")
@click.option("--seed", default=0, show_default=True, help="Seed of the random numbers.")
@click.option("--processes", default=1, show_default=True, help="Number of processes at a time.")
@click.option("--timeout", default=1800.0, show_default=True, help="Timeout of a process, in seconds.")
def main(runs: int, steps: int, seed: int, processes: int, timeout: float) -> None:
    """Use PyTensor's shared variables in functions of all modes alternately.

    The exit status is 1 if a run differs. The shortest differing run of each process is printed as a program.
    """
    chunks = [Runs(number, some, steps) for number, some in seeds(runs, seed)]
    failures = report_runs(chunks, functools.partial(_run, timeout=timeout), processes, runs)
    raise SystemExit(1 if failures else 0)


def _run(chunk: Runs, timeout: float) -> str:
    """Run a chunk in a separate process; return the output of the process if it fails."""
    return run_worker("fuzzing.pytensor.worker", (chunk.seed, chunk.runs, chunk.steps), timeout).trouble


if __name__ == "__main__":
    main()

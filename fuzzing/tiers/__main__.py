"""The command line: ``python -m fuzzing.tiers``."""

from __future__ import annotations

import functools
import os

import click

from fuzzing.machines import Runs, report_runs, seeds
from fuzzing.runner import run_worker


@click.command()
@click.option("--runs", default=2000, show_default=True, help="Number of runs.")
@click.option("--steps", default=12, show_default=True, help="Maximum number of steps of a run.")
@click.option("--seed", default=0, show_default=True, help="Seed of the random numbers.")
@click.option("--processes", default=1, show_default=True, help="Number of processes at a time.")
@click.option("--timeout", default=900.0, show_default=True, help="Timeout of a process, in seconds.")
def main(runs: int, steps: int, seed: int, processes: int, timeout: float) -> None:
    """Bring tiered functions into every state, and call them in threads and with interrupts.

    The exit status is 1 if a run differs. The first differing run of each process is printed as a program. The same
    seed draws the same steps, but threads alternate in another order each time.
    """
    chunks = [Runs(number, some, steps) for number, some in seeds(runs, seed)]
    failures = report_runs(chunks, functools.partial(_run, timeout=timeout), processes, runs)
    raise SystemExit(1 if failures else 0)


def _run(chunk: Runs, timeout: float) -> str:
    """Run a chunk in a separate process; return the output of the process if it fails."""
    flags = ",".join(filter(None, [os.environ.get("THEANO_FLAGS", ""), "gcc.cxxflags=-O0"]))
    arguments = (chunk.seed, chunk.runs, chunk.steps)
    return run_worker("fuzzing.tiers.worker", arguments, timeout, {"THEANO_FLAGS": flags}).trouble


if __name__ == "__main__":
    main()

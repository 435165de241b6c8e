"""The command line: ``python -m fuzzing.tiers``."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import click

from fuzzing.runner import report_chunks, run_worker

#: Runs of one process: what a process compiles stays in its memory.
CHUNK = 50


@dataclass(frozen=True)
class Chunk:
    """Some runs, and the seed that they come from."""

    seed: int
    runs: int
    steps: int

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.runs} runs of up to {self.steps} steps"


@click.command()
@click.option("--runs", default=2000, show_default=True, help="How many.")
@click.option("--steps", default=12, show_default=True, help="The most steps of a run.")
@click.option("--seed", default=0, show_default=True, help="Where random numbers begin.")
@click.option("--processes", default=1, show_default=True, help="How many at a time.")
@click.option("--timeout", default=900.0, show_default=True, help="Seconds that one process may take.")
def main(runs: int, steps: int, seed: int, processes: int, timeout: float) -> None:
    """Bring tiered functions into every state, and call them in threads and with interrupts.

    The exit status is 1 where a run differs; the first one of each process is printed, as a program. The same seed
    draws the same steps, but threads take turns in another order each time.
    """
    begun = time.monotonic()
    done = 0

    def progress(chunk: Chunk, failures: int) -> str:
        nonlocal done
        done += chunk.runs
        took = f"{time.monotonic() - begun:.0f} s"
        return f"{done} of {runs} runs, {failures} processes with a difference, {took}"

    failures = report_chunks(_chunks(runs, steps, seed), functools.partial(_run, timeout=timeout), processes, progress)
    raise SystemExit(1 if failures else 0)


def _chunks(runs: int, steps: int, seed: int) -> Iterator[Chunk]:
    for number, first in enumerate(range(0, runs, CHUNK)):
        yield Chunk(seed * 1_000_000 + number, min(runs - first, CHUNK), steps)


def _run(chunk: Chunk, timeout: float) -> str:
    """Make some runs in a process; return what it prints if it fails."""
    flags = ",".join(filter(None, [os.environ.get("THEANO_FLAGS", ""), "gcc.cxxflags=-O0"]))
    arguments = (chunk.seed, chunk.runs, chunk.steps)
    return run_worker("fuzzing.tiers.worker", arguments, timeout, {"THEANO_FLAGS": flags}).trouble


if __name__ == "__main__":
    main()

"""The command line: ``python -m fuzzing.states``."""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from fuzzing.profiles import kernels_option, memory_option
from fuzzing.runner import report_chunks, run_worker, without_compiler

#: Runs of one process: what a process compiles stays in its memory.
CHUNK = 50


@dataclass(frozen=True)
class Chunk:
    """Some runs, and the seed that they come from."""

    seed: int
    runs: int
    steps: int
    device: str
    kernels: str
    memory: str

    def __str__(self) -> str:
        where = f"on {self.device}, kernels {self.kernels}, memory {self.memory}"
        return f"seed {self.seed}, {self.runs} runs of up to {self.steps} steps {where}"


@click.command()
@click.option("--runs", default=1000, show_default=True, help="How many.")
@click.option("--steps", default=30, show_default=True, help="The most steps of a run.")
@click.option("--seed", default=0, show_default=True, help="Where random numbers begin.")
@click.option("--processes", default=os.cpu_count() or 1, show_default=True, help="How many at a time.")
@click.option("--device", default="auto", show_default=True, help="On which device, as optdb.mode names it.")
@kernels_option
@memory_option
@click.option("--timeout", default=900.0, show_default=True, help="Seconds that one process may take.")
def main(
    runs: int,
    steps: int,
    seed: int,
    processes: int,
    device: str,
    kernels: tuple[str, ...],
    memory: tuple[str, ...],
    timeout: float,
) -> None:
    """Use shared variables by functions of the host and of a device in turn, and compare with a model in NumPy.

    The exit status is 1 where a run differs; the shortest one of each process is printed, as a program. The same seed
    gives the same runs.
    """
    begun = time.monotonic()
    done = 0

    def progress(chunk: Chunk, failures: int) -> str:
        nonlocal done
        done += chunk.runs
        took = f"{time.monotonic() - begun:.0f} s"
        return f"{done} of {runs} runs, {failures} processes with a difference, {took}"

    profiles = list(itertools.product(kernels, memory))
    chunks = _chunks(runs, steps, seed, device, profiles)
    failures = report_chunks(chunks, functools.partial(_run, timeout=timeout), processes, progress)
    raise SystemExit(1 if failures else 0)


def _chunks(runs: int, steps: int, seed: int, device: str, profiles: Sequence[tuple[str, str]]) -> Iterator[Chunk]:
    """Yield what is to be run."""
    for number, first in enumerate(range(0, runs, CHUNK)):
        profile = profiles[number % len(profiles)]
        yield Chunk(seed * 1_000_000 + number, min(runs - first, CHUNK), steps, device, *profile)


def _run(chunk: Chunk, timeout: float) -> str:
    """Make some runs in a process; return what it prints if it fails."""
    arguments = (chunk.seed, chunk.runs, chunk.steps, chunk.device, chunk.kernels, chunk.memory)
    return run_worker("fuzzing.states.worker", arguments, timeout, without_compiler()).trouble


if __name__ == "__main__":
    main()

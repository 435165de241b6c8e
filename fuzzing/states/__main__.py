"""The command line: ``python -m fuzzing.states``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

import click
from rich.console import Console

#: Runs of one process: what a process compiles stays in its memory.
CHUNK = 50


@dataclass(frozen=True)
class Chunk:
    """Some runs, and the seed that they come from."""

    seed: int
    runs: int
    steps: int
    device: str

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.runs} runs of up to {self.steps} steps on {self.device}"


@click.command()
@click.option("--runs", default=1000, show_default=True, help="How many.")
@click.option("--steps", default=30, show_default=True, help="The most steps of a run.")
@click.option("--seed", default=0, show_default=True, help="Where random numbers begin.")
@click.option("--processes", default=os.cpu_count() or 1, show_default=True, help="How many at a time.")
@click.option("--device", default="auto", show_default=True, help="On which device, as optdb.mode names it.")
@click.option("--timeout", default=900.0, show_default=True, help="Seconds that one process may take.")
def main(runs: int, steps: int, seed: int, processes: int, device: str, timeout: float) -> None:
    """Use shared variables by functions of the host and of a device in turn, and compare with a model in NumPy.

    The exit status is 1 where a run differs; the shortest one of each process is printed, as a program. The same seed
    gives the same runs.
    """
    console = Console(soft_wrap=True)
    begun = time.monotonic()
    done = failures = 0
    with ThreadPoolExecutor(processes) as pool:
        running = {pool.submit(_run, chunk, timeout): chunk for chunk in _chunks(runs, steps, seed, device)}
        for future in as_completed(running):
            chunk, trouble = running[future], future.result()
            done += chunk.runs
            if trouble:
                failures += 1
                console.rule(f"{chunk}")
                console.print(trouble, highlight=False, markup=False)
            took = f"{time.monotonic() - begun:.0f} s"
            console.print(f"{done} of {runs} runs, {failures} processes with a difference, {took}", highlight=False)
    raise SystemExit(1 if failures else 0)


def _chunks(runs: int, steps: int, seed: int, device: str) -> Iterator[Chunk]:
    """Yield what is to be run."""
    for number, first in enumerate(range(0, runs, CHUNK)):
        yield Chunk(seed * 1_000_000 + number, min(runs - first, CHUNK), steps, device)


def _run(chunk: Chunk, timeout: float) -> str:
    """Make some runs in a process; return what it prints if it fails."""
    arguments = [str(chunk.seed), str(chunk.runs), str(chunk.steps), chunk.device]
    flags = f"cxx=,{os.environ.get('THEANO_FLAGS', '')}".strip(",")
    try:
        process = subprocess.run(
            [sys.executable, "-m", "fuzzing.states.worker", *arguments],
            env={**os.environ, "THEANO_FLAGS": flags},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return f"no end within {timeout:g} seconds:\n{error.output or ''}"
    return "" if not process.returncode else f"status {process.returncode}:\n{process.stdout}"


if __name__ == "__main__":
    main()

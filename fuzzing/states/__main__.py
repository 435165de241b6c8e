"""The command line: ``python -m fuzzing.states``."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from fuzzing.machines import Runs, report_runs, seeds
from fuzzing.profiles import kernels_option, memory_option
from fuzzing.runner import options, run_worker, without_compiler


@dataclass(frozen=True)
class RunsOnDevice(Runs):
    """The seed and the number of some runs, their device, and how the device's profile is changed."""

    device: str
    kernels: str
    memory: str

    def __str__(self) -> str:
        return f"{super().__str__()} on {self.device}, kernels {self.kernels}, memory {self.memory}"


@click.command()
@options(runs=1000, steps=30, seed=0, processes=os.cpu_count() or 1, timeout=900.0)
@click.option("--device", default="auto", show_default=True, help="Device, named as in optdb.mode.")
@kernels_option
@memory_option
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
    """Use shared variables in host and device functions alternately, and compare their values with a model's in NumPy.

    The exit status is 1 if a run differs. The shortest differing run of each process is printed as a program. The same
    seed gives the same runs.
    """
    profiles = list(itertools.product(kernels, memory))
    chunks = _chunks(runs, steps, seed, device, profiles)
    failures = report_runs(chunks, functools.partial(_run, timeout=timeout), processes, runs)
    raise SystemExit(1 if failures else 0)


def _chunks(
    runs: int, steps: int, seed: int, device: str, profiles: Sequence[tuple[str, str]]
) -> Iterator[RunsOnDevice]:
    for profile, (number, some) in zip(itertools.cycle(profiles), seeds(runs, seed)):
        yield RunsOnDevice(number, some, steps, device, *profile)


def _run(chunk: RunsOnDevice, timeout: float) -> str:
    """Run a chunk in a separate process; return the output of the process if it fails."""
    arguments = (chunk.seed, chunk.runs, chunk.steps, chunk.device, chunk.kernels, chunk.memory)
    return run_worker("fuzzing.states.worker", arguments, timeout, without_compiler()).trouble


if __name__ == "__main__":
    main()

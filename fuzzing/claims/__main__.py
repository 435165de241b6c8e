"""The command line: ``python -m fuzzing.claims``."""

from __future__ import annotations

import functools
import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from fuzzing.claims.operations import OPERATIONS
from fuzzing.claims.ways import WAYS
from fuzzing.runner import options, report_chunks, run_worker, without_compiler
from memcheck.log import parse

#: Number of examples per process; it is limited because a process keeps compiled code in memory.
CHUNK = 100
#: The name of the device that checks each memory access.
OCLGRIND = "oclgrind"


@dataclass(frozen=True)
class Chunk:
    """The seed and the number of some examples, and the way and the device that compute them."""

    way: str
    seed: int
    examples: int
    device: str

    def __str__(self) -> str:
        return f"{self.way} on {self.device}, seed {self.seed}, {self.examples} examples"


@click.command()
@options(examples=1000, seed=0, processes=os.cpu_count() or 1, timeout=600.0)
@click.option("--way", "ways", multiple=True, type=click.Choice(list(WAYS)), help="Ways to test; all by default.")
@click.option(
    "--device",
    "devices",
    multiple=True,
    help=f"Devices to use in turn, named as in optdb.mode; {OCLGRIND} finds each out-of-bounds access.",
)
@click.option("--without", multiple=True, type=click.Choice(list(OPERATIONS)), help="Exclude an operation.")
def main(
    examples: int,
    seed: int,
    processes: int,
    ways: tuple[str, ...],
    devices: tuple[str, ...],
    without: tuple[str, ...],
    timeout: float,
) -> None:
    """Compare a device's results with those of Theano's Python code, for functions whose values violate their types.

    The exit status is 1 if an example differs, overwrites the caller's memory, or, on Oclgrind, reads or writes out of
    bounds. The smallest such example of each process is printed as a case that `fuzzing.claims.comparing.compare`
    accepts. The same seed gives the same examples.
    """
    done = 0

    def progress(chunk: Chunk, failures: int) -> str:
        nonlocal done
        done += chunk.examples
        return f"{done} of {examples} examples, {failures} processes with a difference"

    chunks = _chunks(examples, seed, ways or tuple(WAYS), devices or ("auto",))
    run = functools.partial(_run, without=without, timeout=timeout)
    raise SystemExit(1 if report_chunks(chunks, run, processes, progress) else 0)


def _chunks(examples: int, seed: int, ways: Sequence[str], devices: Sequence[str]) -> Iterator[Chunk]:
    """Yield the chunks to run; they use each combination of one of `ways` and one of `devices` in turn."""
    for number, (way, device) in enumerate(itertools.cycle(itertools.product(ways, devices))):
        if examples <= 0:
            return
        yield Chunk(way, seed * 1_000_000 + number, min(examples, CHUNK), device)
        examples -= CHUNK


def _run(chunk: Chunk, without: tuple[str, ...], timeout: float) -> str:
    """Run some examples in a process; return its output if it fails, followed by Oclgrind's findings."""
    arguments = (chunk.way, chunk.seed, chunk.examples, chunk.device, *without)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "oclgrind.log"
        log.touch()
        environment = {**without_compiler(), "OCLGRIND_LOG": str(log), "OCLGRIND_DATA_RACES": "1"}
        trouble = run_worker("fuzzing.claims.worker", arguments, timeout, environment).trouble
        findings = "\n".join(map(str, parse(log.read_text())))
    return trouble + (f"Oclgrind found:\n{findings}" if findings else "")


if __name__ == "__main__":
    main()

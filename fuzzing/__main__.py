"""The command line: ``python -m fuzzing``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

import click
from rich.console import Console

from fuzzing.operations import OPERATIONS
from fuzzing.ways import WAYS

#: Examples of one process: what a process compiles stays in its memory.
CHUNK = 100


@dataclass(frozen=True)
class Chunk:
    """Some examples of one way, and the seed that they come from."""

    way: str
    seed: int
    examples: int

    def __str__(self) -> str:
        return f"{self.way}, seed {self.seed}, {self.examples} examples"


@click.command()
@click.option("--examples", default=1000, show_default=True, help="How many, of all ways together.")
@click.option("--seed", default=0, show_default=True, help="Where random numbers begin.")
@click.option("--processes", default=os.cpu_count() or 1, show_default=True, help="How many at a time.")
@click.option("--way", "ways", multiple=True, type=click.Choice(list(WAYS)), help="Only these ways; all by default.")
@click.option("--device", default="auto", show_default=True, help="On which device, as optdb.mode names it.")
@click.option("--without", multiple=True, type=click.Choice(list(OPERATIONS)), help="Leave an operation out.")
@click.option("--timeout", default=1800.0, show_default=True, help="Seconds that one process may take.")
def main(
    examples: int,
    seed: int,
    processes: int,
    ways: tuple[str, ...],
    device: str,
    without: tuple[str, ...],
    timeout: float,
) -> None:
    """Compare random functions on a device with what Theano computes without any optimization.

    The exit status is 1 where an example differs; the smallest one of each process is printed, as a program that
    `fuzzing.comparing.compare` takes. The same seed gives the same examples.
    """
    console = Console(soft_wrap=True)
    done = failures = 0
    with ThreadPoolExecutor(processes) as pool:
        running = {pool.submit(_run, chunk, device, without, timeout): chunk for chunk in _chunks(examples, seed, ways)}
        for future in as_completed(running):
            chunk, trouble = running[future], future.result()
            done += chunk.examples
            if trouble:
                failures += 1
                console.rule(f"{chunk}")
                console.print(trouble, highlight=False, markup=False)
            console.print(f"{done} of {examples} examples, {failures} processes with a difference", highlight=False)
    raise SystemExit(1 if failures else 0)


def _chunks(examples: int, seed: int, ways: tuple[str, ...]) -> Iterator[Chunk]:
    """Yield what is to be run, the ways in turn."""
    chosen = ways or tuple(WAYS)
    number = 0
    while examples > 0:
        yield Chunk(chosen[number % len(chosen)], seed * 1_000_000 + number, min(examples, CHUNK))
        examples -= CHUNK
        number += 1


def _run(chunk: Chunk, device: str, without: tuple[str, ...], timeout: float) -> str:
    """Run some examples in a process; return what it tells if it fails."""
    arguments = [chunk.way, str(chunk.seed), str(chunk.examples), device, *without]
    flags = f"cxx=,{os.environ.get('THEANO_FLAGS', '')}".strip(",")
    command = [sys.executable, "-m", "fuzzing.worker", *arguments]
    try:
        process = subprocess.run(
            command,
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

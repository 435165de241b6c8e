"""Runs chunks of examples, each in a separate process, several at a time.

Examples run in chunks because a process keeps compiled code in memory, and because a kernel may crash the process.
`run_chunks` runs several chunks at a time; `run_worker` runs one process, and describes how it crashes, hangs or fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from rich.console import Console

__all__ = ["End", "options", "report_chunks", "run_chunks", "run_worker", "without_compiler"]

#: The help texts of the options that several commands share.
_OPTIONS = {
    "examples": "Number of examples.",
    "runs": "Number of runs.",
    "steps": "Maximum number of steps of a run.",
    "seed": "Seed of the random numbers.",
    "processes": "Number of processes at a time.",
    "timeout": "Timeout of a process, in seconds.",
}

Command = TypeVar("Command", bound=Callable[..., Any])
Chunk = TypeVar("Chunk")
Result = TypeVar("Result")


def options(**defaults: float) -> Callable[[Command], Command]:
    """Return a decorator that adds some of the options in `_OPTIONS` to a command, with the given defaults."""

    def decorate(command: Command) -> Command:
        for name, default in reversed(defaults.items()):
            command = click.option(f"--{name}", default=default, show_default=True, help=_OPTIONS[name])(command)
        return command

    return decorate


def run_chunks(
    chunks: Iterable[Chunk], run: Callable[[Chunk], Result], processes: int
) -> Iterator[tuple[Chunk, Result]]:
    """Run chunks, several at a time; yield each chunk and its result when it ends; stop once `run` raises."""
    with ThreadPoolExecutor(processes) as pool:
        running = {pool.submit(run, chunk): chunk for chunk in chunks}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def report_chunks(
    chunks: Iterable[Chunk],
    run: Callable[[Chunk], str],
    processes: int,
    progress: Callable[[Chunk, int], str],
) -> int:
    """Run chunks; print the errors that `run` returns, and return how many chunks had errors.

    After each chunk, print the line that `progress` returns for the chunk and the number of chunks with errors so far.
    """
    console = Console(soft_wrap=True)
    failures = 0
    for chunk, trouble in run_chunks(chunks, run, processes):
        if trouble:
            failures += 1
            console.rule(f"{chunk}")
            console.print(trouble, highlight=False, markup=False)
        console.print(progress(chunk, failures), highlight=False)
    return failures


@dataclass(frozen=True)
class End:
    """How a worker ended: what it printed, and what went wrong."""

    printed: str
    #: If the worker failed, its exit status and its output; otherwise, an empty string.
    trouble: str = ""


def run_worker(
    module: str,
    arguments: Sequence[Any],
    timeout: float,
    environment: Mapping[str, str] | None = None,
    expected: Collection[int] = (0,),
) -> End:
    """Run a module in a process; return how the process ended; an exit status not in `expected` is a failure."""
    try:
        process = subprocess.run(
            [sys.executable, "-m", module, *map(str, arguments)],
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        printed = (error.output or b"").decode(errors="replace")
        return End(printed, f"no end within {timeout:g} seconds:\n{printed}")
    printed = process.stdout.decode(errors="replace")
    if process.returncode in expected:
        return End(printed)
    return End(printed, f"status {process.returncode}:\n{printed}")


def without_compiler() -> dict[str, str]:
    """Return environment variables that keep this process's Theano flags, except that no C compiler is used."""
    return {"THEANO_FLAGS": f"cxx=,{os.environ.get('THEANO_FLAGS', '')}".strip(",")}

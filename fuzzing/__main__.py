"""The command line: ``python -m fuzzing``."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import click
from rich.console import Console

from fuzzing.operations import OPERATIONS
from fuzzing.pairs import Pairs, shown
from fuzzing.strategies import chosen_values
from fuzzing.switches import Compilation, Process, Surroundings, values_of
from fuzzing.worker import Task

#: Examples of one process: what a process compiles stays in its memory. With a C compiler, all of it is new C code.
CHUNK, CHUNK_OF_C = 100, 10
#: One of so many processes has a C compiler.
C_SHARE = 8


class Restriction(click.ParamType):
    """A switch and one of its values."""

    name = "switch=value"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, _, chosen = value.partition("=")
        switches = {
            switch: of for part in (Process, Surroundings, Compilation) for switch, of in values_of(part).items()
        }
        if name not in switches:
            self.fail(f"{name} is no switch; there are {', '.join(switches)}", param, ctx)
        if chosen not in switches[name]:
            self.fail(f"{chosen} is no value of {name}; it has {', '.join(switches[name])}", param, ctx)
        return name, chosen


@click.command()
@click.option("--examples", default=1000, show_default=True, help="How many.")
@click.option("--seed", default=0, show_default=True, help="Where random numbers begin.")
@click.option("--processes", default=os.cpu_count() or 1, show_default=True, help="How many at a time.")
@click.option("--only", multiple=True, type=Restriction(), help="Confine a switch to this value, or to several.")
@click.option("--device", "devices", multiple=True, help="On which devices in turn, as optdb.mode names them.")
@click.option("--without", multiple=True, type=click.Choice(list(OPERATIONS)), help="Leave an operation out.")
@click.option("--shrink/--no-shrink", default=True, show_default=True, help="Make a failing example smaller.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds that one process may take.")
@click.option(
    "--pairs",
    "pairs_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Add to this file which switches were drawn together how often; python -m fuzzing.pairs reads it.",
)
def main(
    examples: int,
    seed: int,
    processes: int,
    only: tuple[tuple[str, str], ...],
    devices: tuple[str, ...],
    without: tuple[str, ...],
    shrink: bool,
    timeout: float,
    pairs_file: Path | None,
) -> None:
    """Compare random functions under random switches with what Theano computes without any optimization.

    The exit status is 1 where an example differs; the smallest one of each process is printed, as switches and a
    program that `fuzzing.comparing.compare` takes. The same seed gives the same examples.
    """
    console = Console(soft_wrap=True)
    done = failures = 0
    pairs = Pairs()
    confined = {name: [value for other, value in only if other == name] for name, _ in only}
    tasks = _tasks(examples, seed, devices or ("auto",), confined, without, shrink)
    with ThreadPoolExecutor(processes) as pool:
        running = {pool.submit(_run, task, timeout): task for task in tasks}
        for future in as_completed(running):
            task, (trouble, drawn) = running[future], future.result()
            done += task.examples
            pairs.update(drawn)
            if trouble:
                failures += 1
                console.rule(f"{task}")
                console.print(trouble, highlight=False, markup=False)
            console.print(f"{done} of {examples} examples, {failures} processes with a difference", highlight=False)
    if pairs_file is not None:
        pairs.write(pairs_file)
        console.print("\n".join(shown(pairs.never())), highlight=False, markup=False)
        console.print(f"{pairs.examples} examples were compared", highlight=False)
    raise SystemExit(1 if failures else 0)


def _tasks(
    examples: int,
    seed: int,
    devices: Sequence[str],
    only: Mapping[str, Sequence[str]],
    without: Sequence[str],
    shrink: bool,
) -> Iterator[Task]:
    """Yield what is to be run: on each device in turn, under each combination of a process's switches in turn."""
    processes = {compiler: itertools.cycle(_processes(compiler, seed, only)) for compiler in _compilers(only)}
    for number, device in enumerate(itertools.cycle(devices)):
        if examples <= 0:
            return
        with_c = "g++" in processes and (len(processes) == 1 or number % C_SHARE == C_SHARE - 1)
        process = next(processes["g++" if with_c else "none"])
        size = min(examples, CHUNK_OF_C if with_c else CHUNK)
        yield Task(seed * 1_000_000 + number, size, device, process, only, without, shrink)
        examples -= size


def _compilers(only: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Return the compilers that there are."""
    chosen = chosen_values(Process, only)["compiler"]
    return [compiler for compiler in chosen if compiler == "none" or shutil.which(compiler)]


def _processes(compiler: str, seed: int, only: Mapping[str, Sequence[str]]) -> list[Process]:
    """Return all combinations of the switches of a process, shuffled."""
    values = {**chosen_values(Process, only), "compiler": (compiler,)}
    processes = [Process(*chosen) for chosen in itertools.product(*values.values())]
    random.Random(seed).shuffle(processes)
    return processes


def _run(task: Task, timeout: float) -> tuple[str, Pairs]:
    """Run some examples in a process; return what it tells if it fails, and which switches were drawn together."""
    own = ",".join(f"{name}={value}" for name, value in task.process.flags().items())
    flags = ",".join(filter(None, ["gcc.cxxflags=-O0", os.environ.get("THEANO_FLAGS", ""), own]))
    with tempfile.TemporaryDirectory() as folder:
        pairs, current = Path(folder) / "pairs.json", Path(folder) / "example.txt"
        task = dataclasses.replace(task, pairs=str(pairs), current=str(current))
        trouble = _trouble([sys.executable, "-m", "fuzzing.worker", task.to_json()], flags, timeout)
        if trouble and "Differs" not in trouble and current.exists():
            trouble += f"\nThe last example:\n{current.read_text()}"
        return trouble, Pairs.read(pairs) if pairs.exists() else Pairs()


def _trouble(command: list[str], flags: str, timeout: float) -> str:
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

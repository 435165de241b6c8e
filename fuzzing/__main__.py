"""The command line: ``python -m fuzzing``."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console

from fuzzing.operations import OPERATIONS
from fuzzing.pairs import Pairs, shown
from fuzzing.runner import options, run_chunks, run_worker
from fuzzing.strategies import chosen_values
from fuzzing.switches import Compilation, Process, Surroundings, exclusion, values_of
from fuzzing.worker import DIFFERS, Found, Progress, Task

#: Number of examples per process without a C compiler, and per process with a C compiler, which is slow. A process
#: keeps compiled code in memory, so its number of examples is limited.
CHUNK, CHUNK_OF_C = 100, 10
#: Of this many processes, one has a C compiler.
C_SHARE = 8


class Restriction(click.ParamType):
    """A command-line argument that restricts a switch to a value."""

    name = "switch=value"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, _, chosen = value.partition("=")
        switches = {
            switch: of for part in (Process, Surroundings, Compilation) for switch, of in values_of(part).items()
        }
        if name not in switches:
            self.fail(f"{name} is not a switch; the switches are {', '.join(switches)}", param, ctx)
        if chosen not in switches[name]:
            self.fail(f"{chosen} is not a value of {name}; its values are {', '.join(switches[name])}", param, ctx)
        return name, chosen


@click.command()
@options(examples=1000, seed=0, processes=os.cpu_count() or 1, timeout=1200.0)
@click.option(
    "--only", multiple=True, type=Restriction(), help="Restrict a switch to this value; repeat for several values."
)
@click.option("--device", "devices", multiple=True, help="Devices to use in turn, named as in optdb.mode.")
@click.option("--without", multiple=True, type=click.Choice(list(OPERATIONS)), help="Exclude an operation.")
@click.option("--shrink/--no-shrink", default=True, show_default=True, help="Shrink failing examples.")
@click.option("--differences", default=3, show_default=True, help="Number of differences after which a process ends.")
@click.option("--minutes", type=float, help="Minutes after which no new example begins.")
@click.option(
    "--pairs",
    "pairs_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Add the numbers of switch pairs that were drawn to this file, for python -m fuzzing.pairs.",
)
def main(
    examples: int,
    seed: int,
    processes: int,
    only: tuple[tuple[str, str], ...],
    devices: tuple[str, ...],
    without: tuple[str, ...],
    shrink: bool,
    differences: int,
    minutes: float | None,
    timeout: float,
    pairs_file: Path | None,
) -> None:
    """Compare random functions under random switches with Theano's results without any optimization.

    The exit status is 1 if an example differs. The smallest example of each difference is printed, as switches and a
    program that `fuzzing.comparing.compare` accepts. The same seed gives the same examples.
    """
    console = Console(soft_wrap=True)
    drawn = failures = 0
    pairs = Pairs()
    confined = {name: [value for other, value in only if other == name] for name, _ in only}
    until = None if minutes is None else time.time() + 60 * minutes
    tasks = [
        dataclasses.replace(task, shrinks=shrink, differences=differences, until=until)
        for task in _tasks(examples, seed, devices or ("auto",), confined, without)
    ]
    for task, (found, troubles) in run_chunks(tasks, functools.partial(_run, timeout=timeout), processes):
        drawn += found.drawn
        pairs.update(found.pairs)
        failures += len(troubles)
        for trouble in troubles:
            console.rule(f"{task}")
            console.print(trouble, highlight=False, markup=False)
        if found.drawn:
            console.print(f"{drawn} of {examples} examples, {failures} differences", highlight=False)
        if pairs_file is not None:
            found.pairs.write(pairs_file)
    if pairs_file is not None:
        console.print("\n".join(shown(pairs.never())), highlight=False, markup=False)
    console.print(f"{drawn} examples were drawn, {pairs.examples} compared, {failures} differ", highlight=False)
    raise SystemExit(1 if failures else 0)


def _tasks(
    examples: int,
    seed: int,
    devices: Sequence[str],
    only: Mapping[str, Sequence[str]],
    without: Sequence[str],
) -> Iterator[Task]:
    """Yield tasks, each with the next device and the next combination of process-wide switches, in cycles."""
    processes = {compiler: itertools.cycle(_processes(compiler, seed, only)) for compiler in _compilers(only)}
    for number, device in enumerate(itertools.cycle(devices)):
        if examples <= 0:
            return
        with_c = "g++" in processes and (len(processes) == 1 or number % C_SHARE == C_SHARE - 1)
        process = next(processes["g++" if with_c else "none"])
        size = min(examples, CHUNK_OF_C if with_c else CHUNK)
        yield Task(seed * 1_000_000 + number, size, device, process, only, without)
        examples -= size


def _compilers(only: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Return the available compilers."""
    chosen = chosen_values(Process, only)["compiler"]
    return [compiler for compiler in chosen if compiler == "none" or shutil.which(compiler)]


def _processes(compiler: str, seed: int, only: Mapping[str, Sequence[str]]) -> list[Process]:
    """Return the processes that `only` allows, in random order; raise `click.UsageError` if it allows none."""
    values = {**chosen_values(Process, only), "compiler": (compiler,)}
    processes = [Process(*chosen) for chosen in itertools.product(*values.values())]
    possible = [process for process in processes if _excludes(process, only) is None]
    if not possible:
        raise click.UsageError(f"--only excludes all examples: {_excludes(processes[0], only)}")
    random.Random(seed).shuffle(possible)
    return possible


def _excludes(process: Process, only: Mapping[str, Sequence[str]]) -> str | None:
    """Return why a process excludes every value that `only` allows for some switch; None if there is no such switch."""
    for name, values in only.items():
        excluded = (exclusion((name, value), dataclasses.asdict(process)) for value in values)
        rules = [rule for rule in excluded if rule is not None]
        if rules and len(rules) == len(values):
            return f"{name}={', '.join(values)}: {rules[0].reason}"
    return None


#: If a process dies, the next process runs the remaining examples with a seed that is larger by this number.
_NEXT_SEED = 500_000


def _run(task: Task, timeout: float) -> tuple[Found, list[str]]:
    """Run a task's examples; return the results and the messages of differences and crashes."""
    whole = Found()
    troubles: list[str] = []
    while whole.drawn < task.examples and len(troubles) < task.differences:
        rest = dataclasses.replace(task, examples=task.examples - whole.drawn)
        found, new_troubles = _run_process(rest, timeout)
        whole.pairs.update(found.pairs)
        whole.drawn += found.drawn
        troubles += new_troubles
        if len(new_troubles) == len(found.differences):
            break
        # The process died during an example that is not in its count yet.
        whole.drawn += 1
        task = dataclasses.replace(task, seed=task.seed + _NEXT_SEED)
    return whole, troubles


def _run_process(task: Task, timeout: float) -> tuple[Found, list[str]]:
    """Run a task in one process; return its results and the messages of differences and of a crash."""
    if task.until is not None and time.time() > task.until:
        return Found(), []
    own = ",".join(f"{name}={value}" for name, value in task.process.flags().items())
    flags = ",".join(filter(None, ["gcc.cxxflags=-O0", os.environ.get("THEANO_FLAGS", ""), own]))
    with tempfile.TemporaryDirectory() as folder:
        arguments = [dataclasses.replace(task, folder=folder).to_json()]
        end = run_worker("fuzzing.worker", arguments, timeout, {"THEANO_FLAGS": flags}, (0, DIFFERS)).trouble
        progress = Progress(folder)
        found = progress.found()
        return found, [*found.differences, *([f"{end}\nThe last example:\n{progress.example()}"] if end else [])]


if __name__ == "__main__":
    main()

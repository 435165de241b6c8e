"""Common code of the fuzzers that are state machines: makes runs in processes, and calls functions in threads."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from fuzzing.runner import report_chunks, run_worker

__all__ = [
    "Runs",
    "chosen_settings",
    "end_with_failure",
    "in_threads",
    "make_runs",
    "report_runs",
    "run_processes",
    "seeds",
]

#: Number of runs per process; it is limited because a process keeps compiled code in memory.
_RUNS_OF_A_PROCESS = 50


@dataclass(frozen=True)
class Runs:
    """The seed and the number of some runs, and their maximum number of steps."""

    seed: int
    runs: int
    steps: int

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.runs} runs of up to {self.steps} steps"


Chunk = TypeVar("Chunk", bound=Runs)


def run_processes(
    worker: str, runs: int, steps: int, seed: int, processes: int, timeout: float, flags: dict[str, str] | None = None
) -> None:
    """Make runs in processes that execute the module `worker`; exit with status 1 if a run differs, else with 0."""

    def run(chunk: Runs) -> str:
        return run_worker(worker, (chunk.seed, chunk.runs, chunk.steps), timeout, flags).trouble

    chunks = [Runs(number, some, steps) for number, some in seeds(runs, seed)]
    raise SystemExit(1 if report_runs(chunks, run, processes, runs) else 0)


def seeds(runs: int, seed: int) -> Iterator[tuple[int, int]]:
    """Yield the seed and the number of runs of each process."""
    for number, first in enumerate(range(0, runs, _RUNS_OF_A_PROCESS)):
        yield seed * 1_000_000 + number, min(runs - first, _RUNS_OF_A_PROCESS)


def report_runs(chunks: Iterable[Chunk], run: Callable[[Chunk], str], processes: int, runs: int) -> int:
    """Make runs, several chunks at a time; print the chunks with differences, and return how many chunks differ."""
    begun = time.monotonic()
    done = 0

    def progress(chunk: Chunk, failures: int) -> str:
        nonlocal done
        done += chunk.runs
        took = f"{time.monotonic() - begun:.0f} s"
        return f"{done} of {runs} runs, {failures} processes with a difference, {took}"

    return report_chunks(chunks, run, processes, progress)


def make_runs(machine: type[RuleBasedStateMachine], number: int, runs: int, steps: int, shorten: bool) -> None:
    """Make random runs of a state machine, each of at most `steps` steps; raise the error of a failing run.

    The seed is stored in the machine's class. With `shorten`, Hypothesis first shortens the failing run, which takes
    many times as long as the runs.
    """
    run_state_machine_as_test(seed(number)(machine), settings=chosen_settings(runs, shorten, stateful_step_count=steps))


def chosen_settings(examples: int, shrinks: bool = True, **others: Any) -> settings:
    """Return Hypothesis settings for a number of examples, without a time limit and without a database."""
    return settings(
        max_examples=examples,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if shrinks else (Phase.generate,),
        **others,
    )


def end_with_failure(run: Callable[[], None]) -> None:
    """Call a function; if it raises an error, print the error, and end the process with exit status 1."""
    try:
        run()
    except Exception as error:
        print("".join(traceback.format_exception(error)), end="")
        raise SystemExit(1) from None


def in_threads(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Make each call in its own thread; return the results, or raise the error of a failed call."""
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException] = []

    def run(position: int) -> None:
        try:
            results[position] = calls[position]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(position,)) for position in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results

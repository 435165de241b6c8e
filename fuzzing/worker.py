"""Compares some examples in a separate process: ``python -m fuzzing.worker TASK``, where TASK is a `Task` as JSON.

The process prints the smallest example of each difference. If there is a difference, the exit status is `DIFFERS`.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import sys
import time
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, seed

from fuzzing.comparing import compare
from fuzzing.machines import chosen_settings
from fuzzing.pairs import Pairs
from fuzzing.strategies import Example, examples
from fuzzing.switches import Process

__all__ = ["DIFFERS", "Found", "Progress", "Task", "run"]

#: The exit status of a process that has found differences; Python's own status is 1 for errors of the harness.
DIFFERS = 3

#: Maximum seconds to shrink a difference.
SHRINK_S = 60.0


@dataclass(frozen=True)
class Task:
    """The seed and the number of some examples, and how they are computed.

    `only` maps a switch to the values that it may have. The task ends after the number `differences` of differences,
    and no example begins after the time `until`. `Progress` stores results in `folder`, in case the process dies; if
    `folder` is empty, it stores nothing.
    """

    seed: int
    examples: int
    device: str = "auto"
    process: Process = field(default_factory=Process)
    only: Mapping[str, Collection[str]] = field(default_factory=dict)
    without: Collection[str] = ()
    shrinks: bool = True
    differences: int = 3
    until: float | None = None
    folder: str = ""

    def __str__(self) -> str:
        switches = ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(self.process).items())
        return f"seed {self.seed}, {self.examples} examples, {switches}"

    def to_json(self) -> str:
        """Return the task as JSON, for the command line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Return the task whose JSON form `to_json` has returned."""
        content = json.loads(text)
        return cls(**{**content, "process": Process(**content["process"])})


@dataclass
class Found:
    """The results of some examples: the drawn pairs of switch values, and a text for each difference."""

    pairs: Pairs = field(default_factory=Pairs)
    drawn: int = 0
    differences: list[str] = field(default_factory=list)


class Progress:
    """Stores the intermediate results of a worker in files of `folder`, or nowhere if `folder` is an empty string."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) if folder else None

    def begin(self, example: Example) -> None:
        """Store the example that is computed next."""
        if self._folder is not None:
            program, switches = example
            (self._folder / "example.txt").write_text(f"{switches.script()}\n{program.script()}\n")

    def keep(self, found: Found) -> None:
        """Store results."""
        if self._folder is not None:
            content = {"counts": found.pairs.counts, "examples": found.pairs.examples}
            whole = {"pairs": content, "drawn": found.drawn, "differences": found.differences}
            (self._folder / "found.json").write_text(json.dumps(whole))

    def example(self) -> str:
        """Return the example that was begun last."""
        path = self._folder / "example.txt" if self._folder else None
        return path.read_text() if path and path.exists() else ""

    def found(self) -> Found:
        """Return the stored results."""
        path = self._folder / "found.json" if self._folder else None
        if path is None or not path.exists():
            return Found()
        content = json.loads(path.read_text())
        return Found(Pairs(**content["pairs"]), content["drawn"], content["differences"])


class _OutOfTime(BaseException):
    """Raised when time is over; it ends Hypothesis at once, because Hypothesis only catches subclasses of Exception."""


def run(task: Task) -> Found:
    """Compare random programs under random switches; after a difference, the remaining examples use another seed."""
    found, progress = Found(), Progress(task.folder)
    for attempt in range(task.differences):
        if found.drawn >= task.examples:
            break
        try:
            difference = _Search(task, found, progress).run(task.seed if not attempt else f"{task.seed}, {attempt}")
        except _OutOfTime:
            break
        if not difference:
            break
        found.differences.append(difference)
        progress.keep(found)
    return found


class _Search:
    """Compares examples until one differs, and shrinks this example."""

    def __init__(self, task: Task, found: Found, progress: Progress) -> None:
        self._task, self._found, self._progress = task, found, progress
        self._difference = ""
        self._shrinks_until = 0.0

    def run(self, first: object) -> str:
        """Return the smallest example that differs and its difference; an empty string if none differs."""
        task = self._task
        chosen = chosen_settings(task.examples - self._found.drawn, task.shrinks)
        examine = seed(first)(
            chosen(given(examples(task.process, task.without, task.only))(lambda example: self._examine(example)))
        )
        try:
            examine()
        except Exception:
            # At the end, Hypothesis runs the smallest example again. If the time to shrink is over, this run passes,
            # and Hypothesis reports an error.
            if not self._difference:
                raise
        return self._difference

    def _examine(self, example: Example) -> None:
        task, found = self._task, self._found
        if self._difference:
            self._shrink(example)
            return
        if task.until is not None and time.time() > task.until:
            raise _OutOfTime
        self._progress.begin(example)
        found.drawn += 1
        self._compare(example)
        self._progress.keep(found)

    def _shrink(self, example: Example) -> None:
        """Compare an example that Hypothesis draws to shrink a failing example; do not count it."""
        if time.monotonic() < self._shrinks_until:
            self._compare(example, counted=False)

    def _compare(self, example: Example, counted: bool = True) -> None:
        program, switches = example
        try:
            compared = compare(program, switches, self._task.device)
        except Exception:
            if not self._difference:
                self._shrinks_until = time.monotonic() + SHRINK_S
            # Replace the difference of the previous example, which is larger, because Hypothesis only shrinks.
            self._difference = traceback.format_exc()
            raise
        if compared and counted:
            self._found.pairs.add(switches)


def main() -> None:
    """Run the task that is given as JSON on the command line."""
    faulthandler.enable()
    task = Task.from_json(sys.argv[1])
    task.process.begin(task.device)
    found = run(task)
    if found.differences:
        print("\n\n".join(found.differences))
        raise SystemExit(DIFFERS)


if __name__ == "__main__":
    main()

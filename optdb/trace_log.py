"""Prints the events that the flag optdb.trace selects, one per line on standard error, and times compilers.

Each part of optdb calls `wants` before it builds a line. Where even calling `wants` would be too slow, such as in a
kernel launch, a function registered with `when_changed` installs the printing code.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = ["CompilerRun", "compiler_run", "compiler_runs", "use", "wants", "when_changed", "write"]

#: Maps each traced topic to its name patterns.
_selected: dict[str, Sequence[str]] = {}
_changed: list[Callable[[], None]] = []


def use(selection: Mapping[str, Sequence[str]]) -> None:
    """Trace the given topics from now on; `selection` has the form that `optdb.flags.traced_topics` returns."""
    global _selected
    _selected = dict(selection)
    for callback in _changed:
        callback()


def when_changed(callback: Callable[[], None]) -> None:
    """Call a function now, and each time the flag optdb.trace is set."""
    _changed.append(callback)
    callback()


def wants(topic: str, *names: str) -> bool:
    """Return whether a topic is traced for an object with one of these names, or for any object if no name is given."""
    if topic not in _selected:
        return False
    patterns = _selected[topic]
    return not patterns or not names or any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def write(line: str) -> None:
    """Print a line to standard error."""
    if sys.stderr is not None:
        print(line, file=sys.stderr)


# Compilers


@dataclass(frozen=True)
class CompilerRun:
    """One run of the ``'C compiler'`` or the ``'OpenCL compiler'``; times are in seconds, from `time.perf_counter`."""

    compiler: str
    purpose: str
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """The elapsed wall-clock time, in seconds."""
        return self.end - self.begin


_collecting: list[list[CompilerRun]] = []
_mutex = threading.Lock()


@contextmanager
def compiler_runs() -> Iterator[list[CompilerRun]]:
    """Collect the compiler runs that any thread of this process starts until the block exits."""
    runs: list[CompilerRun] = []
    with _mutex:
        _collecting.append(runs)
    try:
        yield runs
    finally:
        with _mutex:
            # Compare by identity, because two lists may be equal.
            _collecting[:] = [other for other in _collecting if other is not runs]


@contextmanager
def compiler_run(compiler: str, purpose: Callable[[], str]) -> Iterator[None]:
    """Time the compiler that runs in the `with` block. The time is reported even if the block raises.

    `purpose` returns what is compiled. `purpose` is called only if the time is printed or collected.
    """
    begin = time.perf_counter()
    try:
        yield
    finally:
        _report(compiler, purpose, begin, time.perf_counter())


def _report(compiler: str, purpose: Callable[[], str], begin: float, end: float) -> None:
    if not _collecting and not wants("compilers"):
        return
    run = CompilerRun(compiler, purpose(), begin, end)
    with _mutex:
        for runs in _collecting:
            runs.append(run)
    if wants("compilers"):
        write(f"{compiler}: {run.purpose}, {run.seconds:.3f} s")

"""Repeats calls, and shows a progress bar on standard error."""

from __future__ import annotations

import operator
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

#: Minimum duration of a run that shows a bar: a shorter run ends before the bar can be read.
SHORT_RUN_S = 2.0
#: Interval in seconds between updates of the bar, and thus the longest delay before an interrupt takes effect.
UPDATE_INTERVAL_S = 0.25


def checked_times(times: Any) -> int:
    """Return the number of calls; raise TypeError or ValueError unless it is a positive integer."""
    count = operator.index(times)
    if count < 1:
        raise ValueError(f"the number of calls must be 1 or more, not {count}")
    return count


def calls_in_chunks(call: Callable[[], Any], times: int, with_bar: bool) -> Any:
    """Make calls one by one, with a progress bar if they take a long time; return the last result."""

    def run(steps: int) -> Any:
        for _ in range(steps - 1):
            call()
        return call()

    return in_chunks(run, times, with_bar)


def shows_progress(wanted: bool | None) -> bool:
    """Return whether long runs show a progress bar; by default, they do if standard error is a terminal."""
    return sys.stderr.isatty() if wanted is None else wanted


def in_chunks(run: Callable[[int], Any], steps: int, with_bar: bool = True) -> Any:
    """Run steps in growing chunks, with a progress bar if they take a long time; in one chunk if no bar is wanted.

    `run(count)` runs `count` steps and returns when they are done. Return what the last call of `run` returns.
    """
    if not with_bar:
        return run(steps)
    result, done, chunk = None, 0, 1
    start = time.perf_counter()
    bar: Progress | None = None
    try:
        while done < steps:
            chunk = min(chunk, steps - done)
            result = run(chunk)
            done += chunk
            elapsed = time.perf_counter() - start
            if bar is None and elapsed > UPDATE_INTERVAL_S and elapsed * steps / done > SHORT_RUN_S:
                bar = started_bar(steps)
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done)
            # The first steps compile and record, and later steps may be much faster, so chunks grow gradually.
            chunk *= 2
            if bar is not None:
                chunk = min(chunk, max(1, round(done * UPDATE_INTERVAL_S / elapsed)))
        return result
    finally:
        if bar is not None:
            bar.stop()


def started_bar(steps: int | None) -> Progress:
    """Start a progress bar for `steps` steps; rich is imported only if a bar is shown."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("steps"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    # In a file, the bar's final state remains; on a terminal, the bar is cleared.
    bar = Progress(*columns, console=console, transient=console.is_terminal)
    bar.add_task("steps", total=steps)
    bar.start()
    return bar

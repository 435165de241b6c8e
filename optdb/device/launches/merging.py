"""Replaces a plan's commands by fewer launches if that pays off (:class:`LaunchMerging`).

A generator, the *course*, decides which commands are merged, and when. It yields a :class:`Pause` to let calls continue
meanwhile, and finally returns the merged commands.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from optdb.runtime.background import in_background
from optdb.runtime.commands import CommandList

Result = TypeVar("Result")
#: A plan's commands in segments; each segment's commands are enqueued in order.
Segments = Sequence[CommandList]


@dataclass(frozen=True, eq=False)
class Pause:
    """A wait requested by a course: its condition, and the commands to enqueue meanwhile."""

    segments: Segments | None = None  #: The segments to enqueue from the next call on; None to leave them unchanged.
    calls: int = 0  #: Total number of the plan's calls before the course continues.
    is_ready: Callable[[], bool] = lambda: True  #: Returns whether the course may continue once these calls were made.
    is_watched: bool = False  #: Whether each call during the wait has to run in Python.
    call_ended: Callable[[], None] = lambda: None  #: Called whenever all commands of a call have been enqueued.


#: A generator that decides which commands are merged; returns the final segments, or None for no change.
Course = Generator[Pause, None, "Segments | None"]


class LaunchMerging:
    """Applies a course's decisions to a plan's launches; the course runs up to its first pause at once."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._calls = 0
        self._pause: Pause | None = None
        self._advance()

    @property
    def done(self) -> bool:
        return self._pause is None

    def next(self) -> Segments | None:
        """Return the segments for the next calls; None if unchanged."""
        self._calls += 1
        pause = self._pause
        if pause is None or self._calls <= pause.calls or not pause.is_ready():
            return None
        return self._advance()

    def call_ended(self) -> None:
        if self._pause is not None:
            self._pause.call_ended()

    def expect(self, times: int) -> bool:
        """Note that `times` calls need no Python; return whether a call must run in Python first."""
        pause = self._pause
        if pause is None or not pause.is_ready():
            return False
        if pause.is_watched:
            return True
        self._calls = min(self._calls + times, pause.calls)
        return self._calls >= pause.calls

    def _advance(self) -> Segments | None:
        self._pause = None
        try:
            self._pause = next(self._course)
        except StopIteration as end:
            segments: Segments | None = end.value
            return segments
        return self._pause.segments


def in_thread(work: Callable[[], Result]) -> Generator[Pause, None, Result | None]:
    """Run `work` in a background thread while calls continue; return its result, or None if the process exits."""
    future = in_background(work, "optdb-merging")
    if future is None:
        return None
    yield Pause(is_ready=future.done)
    return future.result()

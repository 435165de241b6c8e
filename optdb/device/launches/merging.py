"""Replaces the commands of a plan by fewer launches when that pays off: :class:`LaunchMerging`.

A *course*, a generator, decides what is merged and when. It yields a :class:`Pause` to let calls continue in the
meantime, and returns the final commands. There are three courses:

- ``sequential``: on a processor, one work item executes small launches in order;
- ``persistent``: on a GPU, resident groups execute chains of small commands, and meet at barriers;
- ``copies``: on both, one launch executes many small copies of next values.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from optdb.runtime.background import in_background
from optdb.runtime.commands import CommandList

__all__ = ["Course", "LaunchMerging", "Pause", "in_thread"]

Result = TypeVar("Result")
#: The commands of a plan in segments, each enqueued in order.
Segments = Sequence[CommandList]


@dataclass(frozen=True, eq=False)
class Pause:
    """The condition that a course waits for, and the commands to enqueue in the meantime."""

    segments: Segments | None = None  #: The segments to enqueue from the next call on; None to leave them unchanged.
    calls: int = 0  #: Number of calls of the plan, in total, before the course continues.
    is_ready: Callable[[], bool] = lambda: True  #: Tells whether the course may continue after these calls.
    is_watched: bool = False  #: Whether each call until then has to run in Python.
    call_ended: Callable[[], None] = lambda: None  #: Called when all commands of a call are enqueued.


#: Decides what is merged; returns the final segments, or None to leave them unchanged.
Course = Generator[Pause, None, "Segments | None"]


class LaunchMerging:
    """Merges the launches of a plan as a course decides.

    Parameters
    ----------
    course : generator
        The course; its first part runs immediately.
    """

    def __init__(self, course: Course) -> None:
        self._course = course
        self._calls = 0
        self._pause: Pause | None = None
        self._advance()

    @property
    def done(self) -> bool:
        """Whether nothing is left to decide."""
        return self._pause is None

    def next(self) -> Segments | None:
        """Return the segments to enqueue from the next call on; None if they are unchanged."""
        self._calls += 1
        pause = self._pause
        if pause is None or self._calls <= pause.calls or not pause.is_ready():
            return None
        return self._advance()

    def call_ended(self) -> None:
        """Note that all commands of a call are enqueued."""
        if self._pause is not None:
            self._pause.call_ended()

    def expect(self, times: int) -> bool:
        """Credit `times` calls that will run without Python; return whether a call has to run in Python before them."""
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
    """Do work in a background thread, without blocking calls; return its result, or None if the process is ending."""
    future = in_background(work, "optdb-merging")
    if future is None:
        return None
    yield Pause(is_ready=future.done)
    return future.result()

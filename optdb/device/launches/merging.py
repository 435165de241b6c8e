"""Replaces the commands of a plan by fewer launches, when that pays: :class:`LaunchMerging`.

What is merged, and when, says a *course*: a generator of a back end. It yields a :class:`Pause` whenever calls go on as
they are, and returns the last commands. There are three:

- ``sequential``: on a processor, one work item does small launches one after the other;
- ``persistent``: on a GPU, resident groups do chains of small commands, and meet at barriers;
- ``copies``: on both, one launch does many small copies of next values.
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
    """What a course waits for."""

    segments: Segments | None = None  #: To be enqueued from the next call on; None if they stay as they are.
    calls: int = 0  #: How many calls of the plan there have to be before.
    is_ready: Callable[[], bool] = lambda: True  #: Whether the course may go on then.
    is_watched: bool = False  #: Whether each call until then has to run with Python.
    call_ended: Callable[[], None] = lambda: None  #: Called when all commands of a call are enqueued.


#: Decides what is merged; returns the segments from then on, or None if they stay as they are.
Course = Generator[Pause, None, "Segments | None"]


class LaunchMerging:
    """Merges the launches of a plan as a course says.

    Parameters
    ----------
    course : generator
        It begins at once.
    """

    def __init__(self, course: Course) -> None:
        self._course = course
        self._calls = 0
        self._pause: Pause | None = None
        self._go_on()

    @property
    def done(self) -> bool:
        """Whether nothing is left to decide."""
        return self._pause is None

    def next(self) -> Segments | None:
        """Return the segments to enqueue from the next call on; None if they stay as they are."""
        self._calls += 1
        pause = self._pause
        if pause is None or self._calls <= pause.calls or not pause.is_ready():
            return None
        return self._go_on()

    def call_ended(self) -> None:
        """Note that all commands of a call are enqueued."""
        if self._pause is not None:
            self._pause.call_ended()

    def expect(self, times: int) -> bool:
        """Credit `times` calls that will run without Python; return whether one has to run with it before them."""
        pause = self._pause
        if pause is None or not pause.is_ready():
            return False
        if pause.is_watched:
            return True
        self._calls = min(self._calls + times, pause.calls)
        return self._calls >= pause.calls

    def _go_on(self) -> Segments | None:
        self._pause = None
        try:
            self._pause = next(self._course)
        except StopIteration as end:
            segments: Segments | None = end.value
            return segments
        return self._pause.segments


def in_thread(work: Callable[[], Result]) -> Generator[Pause, None, Result | None]:
    """Do work in another thread, for which no call waits; return its result, or None where the process ends."""
    future = in_background(work, "optdb-merging")
    if future is None:
        return None
    yield Pause(is_ready=future.done)
    return future.result()

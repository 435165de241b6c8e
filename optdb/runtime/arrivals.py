"""Copies that are on their way, and how any thread waits for them (`Arrival`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.runtime.library import cl

__all__ = ["Arrival", "finish_event"]


class Arrival:
    """Copies that are waited for. Any thread may wait.

    Parameters
    ----------
    events : sequence
        Of the copies: what `finish_event` takes.
    """

    def __init__(self, events: Sequence[Any]) -> None:
        self._events = events

    def wait(self) -> None:
        """Wait until the copies are complete."""
        for event in self._events:
            finish_event(event)


def finish_event(event: Any) -> None:
    """Wait for an event, or for what a script begins. Python's lock is given away only if that takes time."""
    if event is None:
        return
    if not isinstance(event, cl.Event) or event.command_execution_status != cl.command_execution_status.COMPLETE:
        event.wait()

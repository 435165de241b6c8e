"""Copies in progress that any thread can wait for (`Arrival`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.runtime.library import cl

__all__ = ["Arrival", "finish_event"]


class Arrival:
    """Copies in progress. Any thread may wait for them.

    Parameters
    ----------
    events : sequence
        The copies' events or script commands; see `finish_event`.
    """

    def __init__(self, events: Sequence[Any]) -> None:
        self._events = events

    def wait(self) -> None:
        """Wait until the copies are complete."""
        for event in self._events:
            finish_event(event)


def finish_event(event: Any) -> None:
    """Wait for an event or a script's command. The GIL is released only if the event is not complete."""
    if event is None:
        return
    if not isinstance(event, cl.Event) or event.command_execution_status != cl.command_execution_status.COMPLETE:
        event.wait()

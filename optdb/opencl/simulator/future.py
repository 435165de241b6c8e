"""A call that was begun: `SimulatorOCL.run_async` returns it before the device is done."""

from __future__ import annotations

import time
from typing import Any

from optdb.runtime.timing import CommandRange, Times

__all__ = ["Future"]

#: Seconds between two looks at whether the device is done, for who waits only so long.
_PATIENCE = 2e-4


class Future:
    """A call of which the device may not be done."""

    def __init__(self, returned: Any, span: CommandRange, events: list[Any]) -> None:
        #: Arrays of the host in it may not have their numbers yet.
        self._returned = returned
        #: All that the call has put into the queue.
        self._span = span
        #: Of the values that are on their way to the device and from there.
        self._events = events

    def done(self) -> bool:
        """Tell whether the outputs are there."""
        return self._span.done

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the outputs, and return them as the call itself does; each time the same ones.

        Parameters
        ----------
        timeout : float, optional
            Seconds; as long as it takes if it is None.

        Raises
        ------
        TimeoutError
            If they are not there then. The device goes on; wait again.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while end is not None and not self._span.done:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the device is not done after {timeout:g} seconds; it goes on: wait again")
            time.sleep(min(_PATIENCE, left))
        self._span.wait()
        for event in self._events:
            event.wait()
        self._events.clear()
        return self._returned

    @property
    def times(self) -> Times:
        """When the device did the call, in nanoseconds by its own clock; waits until it has done it."""
        return self._span.times()

    def __repr__(self) -> str:
        return f"<call of a simulator, {'done' if self.done() else 'at work'}>"

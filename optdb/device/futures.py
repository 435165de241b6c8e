"""Calls that the device may not have finished."""

from __future__ import annotations

import time
from typing import Any

from optdb.runtime.timing import CommandRange, Times

#: Polling interval in seconds for waits with a timeout.
_PATIENCE = 2e-4


class Future:
    """A call that the device may not have finished."""

    def __init__(self, returned: Any, span: CommandRange, events: list[Any]) -> None:
        #: Host arrays that may not have been filled yet.
        self._returned = returned
        #: The commands that the call has enqueued.
        self._span = span
        #: Events of the pending uploads and downloads.
        self._events = events

    def done(self) -> bool:
        """Return whether the outputs are available.

        Returns
        -------
        bool
            Whether `wait` would return immediately.
        """
        return self._span.done

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the outputs and return them in the same form as a call does; repeated waits return the same objects.

        Parameters
        ----------
        timeout : float, optional
            Maximum seconds to wait; None waits without a limit.

        Returns
        -------
        numpy.ndarray, list, dict or None
            The results, as the function returns them.

        Raises
        ------
        TimeoutError
            If the outputs are not available within the timeout. The device continues, and `wait` may be called again.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while end is not None and not self._span.done:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the device is still computing after {timeout:g} seconds; wait again")
            time.sleep(min(_PATIENCE, left))
        self._span.wait()
        for event in self._events:
            event.wait()
        self._events.clear()
        return self._returned

    @property
    def times(self) -> Times:
        """Wait until the call has ended; return its start and end in nanoseconds on the device's clock."""
        return self._span.times()

    def __repr__(self) -> str:
        return f"<call on a device, {'done' if self.done() else 'running'}>"

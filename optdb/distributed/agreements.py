"""Votes after which either all threads in a step commit the step, or none of them does (`Agreement`)."""

from __future__ import annotations

import math
import threading

from optdb.distributed.errors import Aborted
from optdb.runtime.driver_batches import loop_library
from optdb.runtime.scripts import NativeAgreement, Script

__all__ = ["Agreement"]


class Agreement:
    """Makes either all workers or none commit a step. If one worker fails before all have agreed, no worker commits.

    Parameters
    ----------
    count : int
        Number of workers.
    timeout : float
        Time in seconds within which all workers must agree once one worker has agreed.
    """

    def __init__(self, count: int, timeout: float) -> None:
        self._votes = _Votes(count) if loop_library() is None else NativeAgreement(count)
        self._timeout = timeout
        self._reason: str | None = None

    @property
    def is_reached(self) -> bool:
        """Whether all workers have agreed."""
        return self._votes.is_reached

    @property
    def is_native(self) -> bool:
        """Whether scripts can call `agree`."""
        return isinstance(self._votes, NativeAgreement)

    def agree(self) -> None:
        """Wait until all workers have agreed; raise `Aborted` if a worker has failed or does not agree in time."""
        if not self._votes.agree(self._timeout):
            self._refuse()

    def agree_by(self, script: Script) -> None:
        """Add the agreement to a script, which then waits like `agree`."""
        assert isinstance(self._votes, NativeAgreement), "scripts need the agreement in C"
        script.agree(self._votes, self._timeout, self._refuse)

    def abort(self, reason: str) -> None:
        """Prevent the agreement unless it is already reached."""
        if not self.is_reached:
            self._reason = self._reason or reason
            self._votes.give_up()

    def _refuse(self) -> None:
        raise Aborted(self._reason or "a worker did not agree in time")


class _Votes:
    """A `NativeAgreement` implemented in Python."""

    def __init__(self, count: int) -> None:
        self._missing: float = count
        self._changed = threading.Condition()

    @property
    def is_reached(self) -> bool:
        return not self._missing

    def agree(self, timeout: float) -> bool:
        with self._changed:
            self._missing -= 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._missing <= 0 or math.isinf(self._missing), timeout)
            return not self._give_up()

    def give_up(self) -> bool:
        with self._changed:
            return self._give_up()

    def _give_up(self) -> bool:
        if self._missing:
            self._missing = math.inf
            self._changed.notify_all()
        return not self.is_reached

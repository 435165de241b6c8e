"""Whose turn it is to use a device: threads that call functions there wait for each other.

A function keeps its arguments, its results and what it computes in storage of its own, and functions on one device
share arrays there. So a call is one thread's, from before its inputs are set until its outputs are read. All functions
of mode OPENCL on a device take turns at one lock: with a lock for each, two functions that call each other by way of
the host could wait for each other for ever. A function that calls itself in the same thread does not wait.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optdb.runtime.context import Context

__all__ = ["Turn"]


class Turn:
    """A context manager within which no other thread calls functions on a device.

    Parameters
    ----------
    context : Context
        The device.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.RLock()

    def __enter__(self) -> Turn:
        """Wait for the turn.

        Raises
        ------
        ForkedContext
            In a forked process, where a thread that is not there may hold the lock.
        """
        self._context.check_process()
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

"""What is in force for the whole process as long as anybody wants it, however many threads do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

__all__ = ["Counted"]

Found = TypeVar("Found")


class Counted(Generic[Found]):
    """Turns something on for the first one in, and puts back what that one found when the last one is out.

    Threads that put back what each of them has found would leave behind what another one has turned on.

    Parameters
    ----------
    turn_on : callable
        Called without arguments; returns what it found.
    put_back : callable
        Called with that.
    """

    def __init__(self, turn_on: Callable[[], Found], put_back: Callable[[Found], object]) -> None:
        self._turn_on = turn_on
        self._put_back = put_back
        self._lock = threading.Lock()
        self._holders = 0
        self._found: Found

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep it on meanwhile. Nested and concurrent uses are counted."""
        with self._lock:
            if self._holders == 0:
                self._found = self._turn_on()
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    self._put_back(self._found)

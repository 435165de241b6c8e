"""A process-wide setting that is on while at least one thread holds it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

__all__ = ["RefCountedSetting"]

Found = TypeVar("Found")


class RefCountedSetting(Generic[Found]):
    """A setting that the first holder turns on, and that the last holder restores to its previous value.

    If each thread restored the value that it found, a thread could undo a setting that another thread still needs.
    `turn_on` returns the previous value, and `put_back` restores it.
    """

    def __init__(self, turn_on: Callable[[], Found], put_back: Callable[[Found], object]) -> None:
        self._turn_on = turn_on
        self._put_back = put_back
        self._lock = threading.Lock()
        self._holders = 0
        self._found: Found

    @property
    def is_held(self) -> bool:
        """Whether any thread holds the setting."""
        return self._holders > 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the setting on until the block exits; nested and concurrent holders are counted."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def begin(self) -> None:
        """Keep the setting on until `end` is called, possibly by another thread."""
        with self._lock:
            if self._holders == 0:
                self._found = self._turn_on()
            self._holders += 1

    def end(self) -> None:
        """Stop holding the setting."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                self._put_back(self._found)

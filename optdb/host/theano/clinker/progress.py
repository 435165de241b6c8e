"""Shows the progress of theano.function after `DELAY_S` seconds: a bar on a terminal, log lines elsewhere."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("optdb.progress")

DELAY_S = 2.0


class CompileProgress:
    """The progress of this process's outermost theano.function."""

    def __init__(self) -> None:
        self._phases: list[str] = []
        self._counted: tuple[int, int | None] = (0, None)
        self._owner: int | None = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._bar: Any = None
        self._task: Any = None
        self._start = 0.0
        self._last_line = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Show a phase, such as ``optimizing``, until the block exits."""
        if self._owner not in (None, threading.get_ident()):
            yield
            return
        self._enter(name)
        try:
            yield
        finally:
            self._leave()

    def count(self, done: int, total: int) -> None:
        """Update the counts of the innermost phase."""
        if self._owner != threading.get_ident():
            return
        with self._lock:
            self._counted = (done, total)
            if self._bar is not None:
                self._bar.update(self._task, completed=done, total=total)
        self._log(f"{self._phases[-1]} {done} of {total}")

    def _enter(self, name: str) -> None:
        with self._lock:
            self._phases.append(name)
            if self._owner is None:
                self._owner = threading.get_ident()
                self._start = self._last_line = time.monotonic()
                if sys.stderr is not None and sys.stderr.isatty():
                    self._timer = threading.Timer(DELAY_S, self._show)
                    self._timer.daemon = True
                    self._timer.start()
        self._begin_task()
        self._log(name)

    def _leave(self) -> None:
        with self._lock:
            self._phases.pop()
        if self._phases:
            self._begin_task()
            return
        with self._lock:
            self._owner = None
            timer, self._timer = self._timer, None
            bar, self._bar = self._bar, None
        if timer is not None:
            timer.cancel()
        if bar is not None:
            bar.stop()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        text = TextColumn("theano.function: {task.description}")
        columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        with self._lock:
            if self._owner is None or self._bar is not None:
                return
            self._bar = bar
            done, total = self._counted
            self._task = bar.add_task(self._phases[-1], completed=done, total=total)
            bar.start()

    def _begin_task(self) -> None:
        with self._lock:
            self._counted = (0, None)
            if self._bar is not None:
                self._bar.remove_task(self._task)
                self._task = self._bar.add_task(self._phases[-1], total=None)

    def _log(self, line: str) -> None:
        now = time.monotonic()
        if now - self._start >= DELAY_S and now - self._last_line >= DELAY_S:
            self._last_line = now
            logger.info("theano.function: %s, %.0f s so far", line, now - self._start)


progress = CompileProgress()

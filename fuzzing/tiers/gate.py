"""Lets the compilers of tiered functions wait until a test starts them."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from theano import config

from optdb.host.theano.clinker.tiers.background import Background
from optdb.host.theano.clinker.tiers.runner import Cancelled

__all__ = ["Gate"]

#: Maximum seconds that a compiler may take on a busy machine.
SECONDS_FOR_COMPILER = 120.0
#: Interval in seconds at which a thread that waits checks whether its library is still needed.
SECONDS_BETWEEN_LOOKS = 0.005


class Gate:
    """Makes the compilers of a queue wait until one or all of them may start.

    The queue must not have started a compiler before.
    """

    def __init__(self, queue: Background) -> None:
        self._queue = queue
        self._run = queue.run
        self._permits = threading.Semaphore(0)
        self._folder = Path(config.compiledir, "fuzzed")
        self._folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def closed(self) -> Iterator[Gate]:
        """Let the queue's compilers wait within the block; at the end, wait until all compilers have ended."""
        self._queue.run = self._wait_and_run
        try:
            yield self
        finally:
            self.let_all()
            self._queue.run = self._run

    def _wait_and_run(
        self, command: Sequence[str], is_needed: Callable[[], bool], env: Mapping[str, str] | None = None
    ) -> bool:
        if "c++-header" in command:  # not needed: a precompiled header only makes compilers faster
            return self._run(command, is_needed)
        while not self._permits.acquire(timeout=SECONDS_BETWEEN_LOOKS):
            if not is_needed():
                raise Cancelled
        return self._compiled(command, is_needed) if env is None else self._run(command, is_needed, env)

    def _compiled(self, command: Sequence[str], is_needed: Callable[[], bool]) -> bool:
        """Run a compiler, or use the stored outcome if the same code was compiled with the same flags before."""
        source, library = _files(command)
        flags = [part for part in command if part not in (str(source), str(library))]
        known = self._folder / hashlib.sha256("\0".join([*flags, source.read_text()]).encode()).hexdigest()
        if known.exists():
            shutil.copyfile(known, library)
            return known.stat().st_size > 0
        is_built = self._run(command, is_needed)
        draft = known.with_suffix(f".{os.getpid()}")
        draft.write_bytes(library.read_bytes() if is_built else b"")
        draft.replace(known)
        return is_built

    def let_one(self) -> None:
        """Let compilers run until one more library is built or has failed."""
        finished = self._queue.finished
        self._let_until(lambda: self._queue.finished > finished)

    def let_all(self) -> None:
        """Let compilers run until all C code is built."""
        self._let_until(lambda: False)

    def _let_until(self, is_enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS_FOR_COMPILER
        while not is_enough() and not self._queue.wait(list(self._queue._jobs.values()), time.monotonic()):
            if time.monotonic() > deadline:
                raise TimeoutError("compilers take too long, or no jobs are queued")
            self._permits.release()
            time.sleep(SECONDS_BETWEEN_LOOKS)
        while self._permits.acquire(blocking=False):
            continue


def _files(command: Sequence[str]) -> tuple[Path, Path]:
    """Return the path of a compiler's input and the path of its output."""
    at = command.index("-o")
    return Path(command[at + 2]), Path(command[at + 1])

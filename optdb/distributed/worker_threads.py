"""Threads for workers, the link between these threads, and the agreement that all workers commit or none does."""

from __future__ import annotations

import ctypes
import math
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, NoReturn

from optdb.distributed.errors import Aborted
from optdb.distributed.exchange import Link, Mailbox, Tag
from optdb.refcounting import RefCountedSetting
from optdb.runtime.all_reduce import Member
from optdb.runtime.driver_batches import loop_library
from optdb.runtime.scripts import Calls, NativeAgreement, Script

__all__ = ["Agreement", "ThreadLink", "WorkerThread", "switch_interval"]

#: Seconds after which a thread that enqueues commands must release the GIL. With Python's default of 5 ms, a thread
#: whose device has finished could wait 5 ms for the GIL.
SWITCH_INTERVAL_S = 1e-5
#: The `prctl` option that sets a thread's timer slack on Linux, and the smallest slack in nanoseconds. By default, the
#: timed waits for the GIL may take up to 50 us too long.
_PR_SET_TIMERSLACK, _SLACK_NS = 29, 1


def _shorten_interval() -> float:
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_INTERVAL_S))
    return before


#: While a thread holds this setting, the threads of this process release the GIL at short intervals.
switch_interval = RefCountedSetting(_shorten_interval, sys.setswitchinterval)


class WorkerThread:
    """A thread that runs tasks one after the other, until this object is deleted or the process exits."""

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        thread = threading.Thread(target=_work, args=(self._tasks,), name=name, daemon=True)
        thread.start()
        #: Ends the thread, and waits until it has ended.
        self.end = weakref.finalize(self, _end_thread, self._tasks, thread)

    def run(self, task: Callable[[], None]) -> None:
        """Queue a task for the thread and return at once."""
        self._tasks.put(task)


def _work(tasks: SimpleQueue[Callable[[], None] | None]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_SLACK_NS))
    while (task := tasks.get()) is not None:
        task()
        del task  # the task may hold the last reference to the thread's owner


def _end_thread(tasks: SimpleQueue[Callable[[], None] | None], thread: threading.Thread) -> None:
    tasks.put(None)
    if thread is not threading.current_thread():
        thread.join()


class ThreadLink(Link):
    """Passes references to arrays between threads."""

    #: A receiver must not write received arrays, because the sender still uses them.
    received_is_writable = False
    shares_memory = True

    def __init__(
        self,
        rank: int,
        mailboxes: Sequence[Mailbox],
        names: Sequence[str],
        lends: bool = False,
        member: Member | None = None,
        readers: list[Sequence[Any]] | None = None,
    ) -> None:
        self._rank, self._mailboxes, self._names = rank, mailboxes, names
        self.lends, self.member = lends, member
        self.readers = [()] * len(names) if readers is None else readers

    def send(self, rank: int, tag: Tag, arrays: Sequence[Any]) -> None:
        self._mailboxes[rank].deliver(self._names[self._rank], tag, arrays)

    def receive(self, rank: int, tag: Tag) -> list[Any]:
        return self._mailboxes[self._rank].take(self._names[rank], tag)

    def refuse(self, missing: int | None) -> NoReturn:
        self._mailboxes[self._rank].refuse(None if missing is None else self._names[missing])


class Agreement:
    """Ensures that either all workers commit a step or none does.

    Once one worker has agreed, the others must agree within `timeout` seconds.
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

    def agree_by(self, calls: Calls) -> None:
        """Add a call of `agree` to `calls` if `calls` is a script; otherwise, call `agree` now."""
        if not isinstance(calls, Script):
            self.agree()
            return
        assert isinstance(self._votes, NativeAgreement), "scripts need the agreement in C"
        calls.agree(self._votes, self._timeout, self._refuse)

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

"""Workers that are threads of this process, each with a device of its own (`ThreadGroup`); dask is not needed."""

from __future__ import annotations

import ctypes
import itertools
import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from optdb.distributed.errors import WorkerFailed
from optdb.distributed.exchange import Aborted, Exchange, Mailbox, Tag
from optdb.distributed.plans import LoosePlan, StepPlan
from optdb.distributed.replicas import Part, Prepared, Replica, replica_of
from optdb.opencl.registry import context_of

__all__ = ["BUCKETS", "ThreadGroup", "ThreadLink", "short_switches"]

#: In how many pieces, at the most, summands go to other devices: all but the last go while a device computes others.
BUCKETS = 8

#: Seconds after which a thread that enqueues commands lets another one have Python's lock. With Python's own 5 ms, a
#: thread whose device has ended may wait for as long before it can begin the next part of a step.
SWITCH_INTERVAL_S = 1e-5
#: Of Linux: prctl's name for how late a thread's timed waits may end, and the least, in nanoseconds. It is 50 us
#: otherwise, and a thread waits for Python's lock by timed waits.
_PR_SET_TIMERSLACK, _SLACK_NS = 29, 1


class _SwitchInterval:
    """Python's switch interval, which is short while at least one thread asks for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = 0.0

    def begin(self) -> None:
        with self._lock:
            if not self._users:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, SWITCH_INTERVAL_S))
            self._users += 1

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                sys.setswitchinterval(self._before)


_switch_interval = _SwitchInterval()


@contextmanager
def short_switches() -> Iterator[None]:
    """Let the threads of this process pass Python's lock on at short intervals within the block."""
    _switch_interval.begin()
    try:
        yield
    finally:
        _switch_interval.end()


def wait_precisely() -> None:
    """Let the timed waits of this thread end on time, where the system lets them be late by default."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_SLACK_NS))


class _Agreement:
    """Lets all workers of a step have it committed, or none: one that fails before all have agreed lets all fail."""

    def __init__(self, count: int, timeout: float) -> None:
        self._missing: float = count
        self._timeout = timeout
        self._reason: str | None = None
        self._changed = threading.Condition()

    @property
    def is_reached(self) -> bool:
        """Whether all have agreed."""
        return not self._missing

    def agree(self) -> None:
        """Wait until all have agreed; raise `Aborted` if one has failed, or does not agree in time."""
        with self._changed:
            if self._reason is None:
                self._missing -= 1
                self._changed.notify_all()
            self._changed.wait_for(lambda: self.is_reached or self._reason is not None, self._timeout)
            if self.is_reached:
                return
            self._reason = self._reason or "a worker has not agreed in time"
            self._changed.notify_all()
            raise Aborted(self._reason)

    def abort(self, reason: str) -> None:
        """Let nobody agree, unless all have done so."""
        with self._changed:
            if not self.is_reached:
                self._missing, self._reason = math.inf, reason
                self._changed.notify_all()


class ThreadLink:
    """Passes references to arrays between threads."""

    #: The sender has them, too.
    received_is_writable = False
    shares_memory = True

    def __init__(
        self,
        rank: int,
        mailboxes: Sequence[Mailbox],
        names: Sequence[str],
        lends: bool = False,
        results: dict[Tag, Any] | None = None,
    ) -> None:
        self._rank, self._mailboxes, self._names = rank, mailboxes, names
        self.lends = lends
        self.results = {} if results is None else results

    def send(self, rank: int, tag: Tag, arrays: Sequence[np.ndarray]) -> None:
        self._mailboxes[rank].deliver(self._names[self._rank], tag, arrays)

    def receive(self, rank: int, tag: Tag) -> list[np.ndarray]:
        return self._mailboxes[self._rank].take(self._names[rank], tag)


class ThreadGroup:
    """Replicas in threads of this process.

    Parameters
    ----------
    plan : StepPlan or LoosePlan
        What a step is.
    devices : sequence of str
        One for each thread.
    timeout : float
        Seconds after which a wait for another thread is an error.
    """

    def __init__(self, plan: StepPlan | LoosePlan, devices: Sequence[str], timeout: float) -> None:
        contexts = [context_of(device) for device in devices]
        twice = next((device for i, device in enumerate(devices) if contexts[i] in contexts[:i]), None)
        if twice is not None or not devices:
            problem = "no device" if twice is None else f"{twice!r} more than once"
            raise ValueError(
                f"devices={list(devices)} has {problem}, and each thread needs one of its own.\n"
                "The cure: parts of a processor, as in devices=['pocl[1/2]', 'pocl[2/2]']"
            )
        self._replicas: list[Replica] = [replica_of(plan, device) for device in devices]
        self._names = [f"thread {rank} on {device}" for rank, device in enumerate(devices)]
        self._mailboxes = [Mailbox(timeout) for _ in devices]
        # All of them, or none: a device that shares the host's memory has its vectors added up there.
        lends = all(replica.adds_on_device for replica in self._replicas)
        #: What one thread has computed of the rounds of the present step, for all.
        self._results: dict[Tag, Any] = {}
        shared = self._mailboxes, self._names, lends, self._results
        self._links = [ThreadLink(rank, *shared) for rank in range(len(devices))]
        # Each has its own, which makes one thing after the other.
        self._threads = [ThreadPoolExecutor(1, f"optdb-worker-{rank}", wait_precisely) for rank in range(len(devices))]
        self._timeout = timeout
        self._attempts = itertools.count(1)
        #: How many steps are committed.
        self.steps = 0

    @property
    def names(self) -> list[str]:
        """What workers are called in messages."""
        return list(self._names)

    addresses = names

    def refresh(self) -> None:
        """Do nothing: no threads appear."""

    def step(self, divide: Callable[[int], list[Part]]) -> tuple[list[Part], list[Prepared]]:
        """Make a step; return the parts and what workers have prepared of them, by rank.

        Parameters
        ----------
        divide : callable
            Takes how many workers there are, and returns a part of the batch for each.

        Raises
        ------
        WorkerFailed
            If one raised an error; the state is that before the step.
        """
        parts = divide(len(self._replicas))
        attempt = next(self._attempts)
        active = sum(part.rows > 0 for part in parts)
        idle = len(parts) - active

        agreement = _Agreement(len(parts), self._timeout)

        def run(rank: int) -> Prepared:
            replica = self._replicas[rank]
            replica.settle(self.steps)
            try:
                prepared = replica.prepare(parts[rank], Exchange(self._links[rank], rank, active, idle, attempt))
                agreement.agree()
            except BaseException as error:
                abort(f"{self._names[rank]} has failed: {error}")
                raise
            # The device makes the update while results travel, and the caller gets the next batch ready. If that
            # raises, the next one who settles the replica tries once more, and gets the error.
            with suppress(Exception):
                replica.commit(self.steps + 1)
            return replica.complete(prepared)

        def abort(reason: str) -> None:
            agreement.abort(reason)
            for mailbox in self._mailboxes:
                mailbox.abort(attempt, reason)

        self._results.clear()
        for mailbox in self._mailboxes:
            mailbox.begin(attempt)
        with short_switches():
            futures = [self._threads[rank].submit(run, rank) for rank in range(len(parts))]
            try:
                wait(futures)
            except BaseException:
                abort("the step was interrupted")
                wait(futures)
                raise
            finally:
                self.steps += agreement.is_reached
        errors = {rank: future.exception() for rank, future in enumerate(futures) if future.exception() is not None}
        if errors:
            # The others only stopped because of it.
            rank = next((rank for rank, error in errors.items() if not isinstance(error, Aborted)), min(errors))
            raise WorkerFailed(f"{self._names[rank]}: {type(errors[rank]).__name__}: {errors[rank]}") from errors[rank]
        return parts, [future.result() for future in futures]

    def state(self) -> list[Any]:
        """Return the values of the shared variables."""
        for replica in self._replicas:
            replica.settle(self.steps)
        return self._replicas[0].state()

    def load(self, state: Sequence[Any], steps: int) -> None:
        """Let all replicas have other values, those after `steps` steps."""
        for replica in self._replicas:
            replica.load(state, steps)
        self.steps = steps

    def close(self) -> None:
        """End the threads, and release the devices' memory."""
        for thread in self._threads:
            thread.shutdown()
        for replica in self._replicas:
            replica.close()

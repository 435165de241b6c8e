"""Workers without dask: threads of this process, each with its own device (`ThreadGroup`)."""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from optdb.distributed.batches import kept
from optdb.distributed.errors import Aborted, WorkerFailed
from optdb.distributed.exchange import Exchange, Mailbox
from optdb.distributed.replica import Ending, Part, Prepared, Replica
from optdb.distributed.replicas import replica_of
from optdb.distributed.training_functions import LocalTraining, SynchronousTraining
from optdb.distributed.worker_threads import Agreement, ThreadLink, WorkerThread, switch_interval
from optdb.opencl.registry import context_of
from optdb.runtime.all_reduce import MemberTable
from optdb.runtime.commands import CommandList
from optdb.runtime.sigint import without_sigint

__all__ = ["BUCKETS", "PendingStep", "ThreadGroup"]

#: The maximum number of pieces in which summands are sent. All but the last piece are sent while the device computes.
BUCKETS = 8
#: The maximum number of pending steps: one runs, and the next step's commands are enqueued meanwhile.
MOST_PENDING = 2
#: An empty list of commands.
_NOTHING = CommandList()


def _outcome_of(compute: Callable[..., Prepared], *args: Any) -> Prepared | BaseException:
    """Call a function, and return its result or the error that it raises."""
    try:
        return compute(*args)
    except BaseException as error:
        return error


class _Skipped(Aborted):
    """Raised if a step is skipped because the previous step failed."""


class ThreadGroup:
    """A group of replicas, each in its own thread of this process with its own device.

    SIGINT is deferred while the main thread changes this object or holds a Python lock. The main thread waits for other
    threads only in C code, for at most `timeout` seconds.
    """

    def __init__(self, training: SynchronousTraining | LocalTraining, devices: Sequence[str], timeout: float) -> None:
        contexts = [context_of(device) for device in devices]
        twice = next((device for i, device in enumerate(devices) if contexts[i] in contexts[:i]), None)
        if twice is not None or not devices:
            problem = "no device" if twice is None else f"{twice!r} more than once"
            raise ValueError(
                f"devices={list(devices)} has {problem}, but each thread needs a device of its own.\n"
                "The cure: name different devices, or parts of a processor, as in devices=['pocl[1/2]', 'pocl[2/2]']"
            )
        self._replicas: list[Replica] = [replica_of(training, device) for device in devices]
        #: The names of the workers, as used in messages.
        self.names = self.addresses = [f"thread {rank} on {device}" for rank, device in enumerate(devices)]
        self._mailboxes = [Mailbox(timeout) for _ in devices]
        # Workers lend their summands to each other's devices only if all devices can add up vectors. Vectors in the
        # host's memory are added up on the host.
        self._lends = all(replica.adds_on_device for replica in self._replicas)
        self._members = MemberTable(len(devices), timeout)
        readers: list[Sequence[Any]] = [()] * len(devices)
        self._links = [
            ThreadLink(rank, self._mailboxes, self.names, self._lends, self._members.member(rank), readers)
            for rank in range(len(devices))
        ]
        names = [f"optdb-worker-{rank}" for rank in range(len(devices))]
        self._threads: list[WorkerThread] = without_sigint(lambda: list(map(WorkerThread, names)))
        #: Maps each rank to whether the next step was launched early, or to the error that the early launch raised.
        self._ahead: list[BaseException | bool] = [False] * len(devices)
        self._timeout = timeout
        self._attempts = itertools.count(1)
        #: The number of committed steps that have ended.
        self._steps = 0
        #: The steps that have not ended, in the order in which they began.
        self._pending: deque[PendingStep] = deque()
        #: A step's error that the caller has not received yet.
        self._unreported: Exception | None = None

    def refresh(self) -> None:
        """Do nothing: the number of threads is fixed."""

    @property
    def steps(self) -> int:
        """The number of committed steps, after waiting for pending steps."""
        self._end_all()
        return self._steps

    @property
    def begun(self) -> int:
        """The number of steps that are committed or pending."""
        return self._steps + len(self._pending)

    def begin(self, divide: Callable[[int], list[Part]], keep: bool = False) -> PendingStep:
        """Begin a step; return at once if fewer than `MOST_PENDING` steps are pending.

        `divide` takes the number of workers and returns a part of the arguments for each worker. If `keep` is set, the
        caller may change the arguments as soon as this method returns; otherwise, only after the step has ended. Raise
        `WorkerFailed` if an earlier step failed and the caller has not received its error.
        """
        while self._pending and (self._pending[0].is_computed or len(self._pending) >= MOST_PENDING):
            self._end_first()
        if self._unreported is not None:
            self._end_all()
            error, self._unreported = self._unreported, None
            raise error
        count = len(self._pending)
        try:
            return without_sigint(self._begin, divide, keep)
        except BaseException:
            if len(self._pending) > count:  # the step was begun, but the caller will not receive it
                self._give_up()
            raise

    def _begin(self, divide: Callable[[int], list[Part]], keep: bool) -> PendingStep:
        given = parts = divide(len(self._replicas))
        previous = self._pending[-1] if self._pending else None
        if keep or previous is not None:
            # The devices may still be running the previous step, so stage the new parts.
            parts = [replica.stage(part) for replica, part in zip(self._replicas, given, strict=True)]
        if keep:
            parts = kept(parts, given)
        step = PendingStep(self, parts, next(self._attempts), self.begun, self._timeout, previous)
        self._pending.append(step)
        switch_interval.begin()
        for rank, thread in enumerate(self._threads):
            thread.run(functools.partial(self._run, step, rank))
        if previous is not None:
            previous.following = step
        return step

    def _run(self, step: PendingStep, rank: int) -> None:
        """Run a worker's part of a step in the worker's thread.

        If the next step has already begun and all workers lend their summands, launch the next step early, so that its
        commands directly follow this step's update.
        """
        try:
            ahead, self._ahead[rank] = self._ahead[rank], False
            if isinstance(ahead, BaseException):
                raise ahead
            if not ahead:
                self._launch(step, rank)
            with self._aborting(step, rank):
                self._replicas[rank].collect()
        except BaseException as error:
            step.set_outcome(rank, error)
            return
        following = step.following
        if following is None or not self._lends:
            step.set_outcome(rank, _outcome_of(self._finish, step, rank))
            return
        try:
            self._launch(following, rank, step)
            self._ahead[rank] = True
        except BaseException as error:
            self._ahead[rank] = error

    def _launch(self, step: PendingStep, rank: int, unfinished: PendingStep | None = None) -> None:
        """Launch a worker's part of a step on its device; if the previous step is `unfinished`, finish it first."""
        replica = self._replicas[rank]
        meet = step.meeting.agree_by
        exchange = Exchange(self._links[rank], rank, step.active, step.idle, step.attempt, meet)
        ending = None if unfinished is None else self._ending(unfinished, rank)
        outcomes: list[Prepared | BaseException] = []

        def begin(first: CommandList) -> bool:
            if unfinished is not None:
                outcomes.append(_outcome_of(self._finish, unfinished, rank, ending, first))
            # At this point, the previous step has ended, so it is known whether that step is committed.
            if step.previous is not None and not step.previous.agreement.is_reached:
                raise _Skipped
            self._mailboxes[rank].begin(step.attempt)
            member = self._links[rank].member
            assert member is not None
            member.begin(step.attempt, step.active, step.agreement.is_native)
            replica.settle(step.number)
            return ending is not None and ending.leads

        try:
            if unfinished is not None:
                # Notify the caller only after the launch, because the caller's thread acquires the GIL.
                exchange.on_launched = lambda: unfinished.set_outcome(rank, outcomes[0])
            replica.launch(step.parts[rank], exchange, begin, ending)
        except BaseException as error:
            if unfinished is not None and not outcomes:
                outcomes.append(_outcome_of(self._finish, unfinished, rank, ending))
            if not isinstance(error, _Skipped):
                self._abort(step, f"{self.names[rank]} has failed: {error}")
            raise
        finally:
            exchange.launched()

    def _ending(self, step: PendingStep, rank: int) -> Ending | None:
        """Return the replica's `ending`; if this method raises an error, this step and the next one fail."""
        try:
            with self._aborting(step, rank):
                return self._replicas[rank].ending(step.agreement)
        except BaseException as error:
            step.set_outcome(rank, error)
            raise _Skipped from error

    def _finish(
        self, step: PendingStep, rank: int, ending: Ending | None = None, first: CommandList = _NOTHING
    ) -> Prepared:
        """Wait for other workers, commit a launched step and return its results.

        If `ending` is given, the script in `ending` does this work, and also enqueues the `first` commands of the next
        step.
        """
        replica = self._replicas[rank]
        with self._aborting(step, rank):
            if ending is not None:
                return replica.end(ending, first)
            prepared = replica.finish()
            try:
                replica.commit(step.number + 1, step.agreement.agree)
            except Exception:
                # Once all workers have agreed, the step counts as committed, and `settle` retries the commit.
                if not step.agreement.is_reached:
                    raise
            return prepared

    @contextmanager
    def _aborting(self, step: PendingStep, rank: int) -> Iterator[None]:
        """Make all workers abort a step if an error is raised within the block."""
        try:
            yield
        except BaseException as error:
            self._abort(step, f"{self.names[rank]} has failed: {error}")
            raise

    def _abort(self, step: PendingStep, reason: str) -> None:
        step.agreement.abort(reason)
        step.meeting.abort(reason)
        for mailbox in self._mailboxes:
            mailbox.abort(step.attempt, reason)
        self._members.abort(step.attempt)

    def end(self, step: PendingStep) -> None:
        """Wait until a step and all earlier steps have ended; `step.error` is the step's error, if any."""
        while step in self._pending:
            self._end_first()

    def _end_all(self) -> None:
        while self._pending:
            self._end_first()

    def _end_first(self) -> None:
        """Wait for the first pending step and remove it; if the wait is interrupted, abort all pending steps."""
        try:
            self._pending[0].wait()
        except BaseException:
            self._give_up()
            raise
        without_sigint(self._pop_first)

    def _give_up(self) -> None:
        """Abort the pending steps and wait for their threads, because the caller was interrupted."""

        def abort_all() -> None:
            for step in self._pending:
                step.is_given_up = True
                self._abort(step, "the step was interrupted")

        def pop_all() -> None:
            while self._pending:
                self._pop_first()

        without_sigint(abort_all)
        for step in self._pending:
            step.wait()
        without_sigint(pop_all)

    def _pop_first(self) -> None:
        """Remove the first pending step, which has ended, and count it if it is committed."""
        step = self._pending.popleft()
        switch_interval.end()
        self._steps += step.agreement.is_reached
        self._note_error(step)
        step.previous = step.following = None

    def _note_error(self, step: PendingStep) -> None:
        """Record whether a finished step failed, and on which worker."""
        errors = [outcome if isinstance(outcome, BaseException) else None for outcome in step.outcomes]
        failed = [rank for rank, error in enumerate(errors) if error is not None]
        if not failed:
            return
        if step.previous is not None and isinstance(errors[failed[0]], _Skipped):
            step.root = step.previous.root
            step.error = WorkerFailed(f"the previous step failed: {step.root}")
            step.error.__cause__ = step.root
            return
        # Workers that raised `Aborted` stopped only because another worker failed.
        rank = next((rank for rank in failed if not isinstance(errors[rank], Aborted)), failed[0])
        step.error = WorkerFailed(f"{self.names[rank]}: {type(errors[rank]).__name__}: {errors[rank]}")
        step.error.__cause__ = errors[rank]
        step.root = step.error
        if not step.is_given_up:
            self._unreported = step.error

    def complete(self, step: PendingStep) -> list[Prepared]:
        """Return the workers' results for a step that has ended, or raise the step's error."""
        if step.error is not None:
            if self._unreported is step.root:
                self._unreported = None
            # Wait for later steps, which were skipped, so that no new step follows a skipped step.
            self._end_all()
            raise step.error
        prepared = []
        for rank, outcome in enumerate(step.outcomes):
            assert isinstance(outcome, Prepared), "a step without an error is prepared by all"
            try:
                prepared.append(self._replicas[rank].complete(outcome))
            except Exception as error:
                raise WorkerFailed(f"{self.names[rank]}: {type(error).__name__}: {error}") from error
        return prepared

    def state(self) -> list[Any]:
        """Wait for all pending steps, and return the values of the shared variables."""
        self._end_all()

        def read() -> list[Any]:
            for replica in self._replicas:
                replica.settle(self._steps)
            return self._replicas[0].state()

        return without_sigint(read)

    def load(self, state: Sequence[Any], steps: int) -> None:
        """Set the state of all replicas to the state after `steps` steps."""
        self._end_all()
        without_sigint(self._load, state, steps)

    def _load(self, state: Sequence[Any], steps: int) -> None:
        for replica in self._replicas:
            replica.load(state, steps)
        self._steps = steps

    def close(self) -> None:
        """End the threads and release the devices' memory."""
        try:
            self._end_all()
        finally:
            without_sigint(self._close)

    def _close(self) -> None:
        for thread in self._threads:
            thread.end()
        for replica in self._replicas:
            replica.close()


class PendingStep:
    """A step that was passed to the threads after `number` other steps; messages identify the step by `attempt`."""

    def __init__(
        self,
        group: ThreadGroup,
        parts: list[Part],
        attempt: int,
        number: int,
        timeout: float,
        previous: PendingStep | None,
    ) -> None:
        self._group = group
        self.parts, self.attempt, self.number, self.previous = parts, attempt, number, previous
        #: The step that begins after this one.
        self.following: PendingStep | None = None
        self.active = sum(part.rows > 0 for part in parts)
        self.idle = len(parts) - self.active
        self.agreement = Agreement(len(parts), timeout)
        #: The agreement that all devices' shares of the sums are on the host.
        self.meeting = Agreement(len(parts), timeout)
        #: For each rank, the prepared results or the error; None while the thread is busy.
        self.outcomes: list[Prepared | BaseException | None] = [None] * len(parts)
        #: A queue that receives an item when a thread has stored its outcome.
        self._changes: SimpleQueue[None] = SimpleQueue()
        #: Whether the caller was interrupted; if so, the step's error is not reported.
        self.is_given_up = False
        #: The step's error, chained to the error that caused it; None until the step has ended.
        self.error: WorkerFailed | None = None
        self.root: WorkerFailed | None = None

    @property
    def is_computed(self) -> bool:
        """Whether all threads have finished the step."""
        return None not in self.outcomes

    def set_outcome(self, rank: int, outcome: Prepared | BaseException) -> None:
        """Record a thread's prepared results or error."""
        self.outcomes[rank] = outcome
        self._changes.put(None)

    def wait(self) -> None:
        """Wait until all threads have finished the step; if the wait is interrupted, no results are lost."""
        while not self.is_computed:
            self._changes.get()
        self._changes.put(None)  # for other waiting threads

    def end(self) -> tuple[list[Part], list[Prepared]]:
        """Wait for the step; return its parts and results by rank, or raise `WorkerFailed` if it failed."""
        self._group.end(self)
        return self.parts, self._group.complete(self)

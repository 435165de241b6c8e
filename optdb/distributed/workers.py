"""Code that runs on dask workers: a `Session` for each `DataParallel`, and handlers for its messages.

Steps run in dask tasks. Since scheduling a task takes longer than a small step, a task runs several steps, for up to
`TASK_S` seconds, and ends early if no step arrives within `IDLE_S`. The client sends parts of batches directly to the
worker's handlers, which reply with the results.
"""

from __future__ import annotations

import asyncio
import pickle
import platform
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import get_worker
from distributed.comm.core import connect
from distributed.protocol.serialize import to_serialize

from optdb import __version__
from optdb.distributed.errors import Aborted, WorkerTimeout
from optdb.distributed.exchange import Exchange, Link, Mailbox, Tag
from optdb.distributed.replica import Part, Prepared, Replica
from optdb.distributed.replicas import replica_of
from optdb.distributed.shared_memory import SharedArrays
from optdb.host.api.config import config
from optdb.host.theano.functions.originals import theano_version
from optdb.opencl.registry import context_of, get_context
from optdb.runtime.devices import list_devices

__all__ = ["IDLE_S", "TASK_S", "Handlers", "Session", "install", "run_steps"]

#: Seconds after which a task ends once its current step has finished, so that other tasks can run.
TASK_S = 1.0
#: Seconds for which a task waits for the next step.
IDLE_S = 0.05

#: A number larger than the number of any attempt or task.
_NEVER = 1 << 62

#: Maps a session's name and a worker's address to the session; one process can contain several workers.
_sessions: dict[tuple[str, str], Session] = {}


def install(dask_worker: Any) -> dict[str, Any]:
    """Install the message handlers on a worker; return the worker's `facts` and devices."""
    Handlers(dask_worker).register()
    return {"facts": facts(), "device": config.optdb.device, "devices": device_list()}


def facts() -> dict[str, str]:
    """Return the versions and settings that must be equal on all workers and the client."""
    return {
        "optdb": __version__,
        "Theano": theano_version,
        "floatX": config.floatX,
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def device_list() -> list[tuple[str, str, int]]:
    """Return, for each working device, the text that selects it, its kind, and its number of compute units."""
    rows = [row for row in list_devices() if row.works and not row.profile.quirks.is_memory_checker]
    return [(row.spec, row.profile.device_kind, row.units) for row in rows]


@dataclass
class _Job:
    """A part of a batch that was received; a dask task runs a step on it later."""

    attempt: int
    committed: int
    part: Part
    exchange: tuple[Sequence[str], int, int, int]  # addresses by rank, own rank, numbers of active and idle workers
    reply: asyncio.Future


class _DaskLink(Link):
    """Sends arrays to other workers over dask's comms or in shared memory, from the thread that runs a step."""

    #: The receiver may write the arrays of a message, which is read into new memory; views of shared memory are marked
    #: as read-only.
    received_is_writable = True
    shares_memory = lends = False

    def __init__(self, session: Session, addresses: Sequence[str]) -> None:
        self._session, self._addresses = session, addresses

    def send(self, rank: int, tag: Tag, arrays: Sequence[Any]) -> None:
        address, attempt = self._addresses[rank], tag[0]
        offer = self._session.shared.offer(address)
        if offer is not None:
            self._session.post(address, "segment", attempt, attempt=attempt, offer=offer)
        stored = self._session.shared.store(address, tag, arrays)
        sent = [to_serialize(array) for array in arrays] if stored is None else []
        self._session.post(address, "pieces", attempt, tag=list(tag), arrays=sent, stored=stored)

    def receive(self, rank: int, tag: Tag) -> list[Any]:
        return list(map(aligned, self._session.mailbox.take(self._addresses[rank], tag)))


class Session:
    """Runs the steps of a `DataParallel` on one worker."""

    def __init__(
        self,
        name: str,
        address: str,
        loop: asyncio.AbstractEventLoop,
        replica: Replica,
        context: Hashable,
        timeout: float,
    ) -> None:
        self.name, self.address, self._loop = name, address, loop
        self.replica, self.context = replica, context
        self.mailbox = Mailbox(timeout)
        self.shared = SharedArrays()
        self._timeout = timeout
        self._jobs: dict[int, _Job] = {}
        self._changed = threading.Condition()
        self._turn = threading.Lock()
        #: The number of the last task that has ended; this task and earlier tasks run no more steps.
        self.ended_task = 0
        #: The number of committed steps in the client's last message; None once a task has handled this message.
        self._announced: int | None = None
        self._commit_error: Exception | None = None
        self._outboxes: dict[str, asyncio.Queue] = {}
        self._writers: list[asyncio.Task] = []
        self._over = 0

    # Sums

    def post(self, address: str, what: str, attempt: int, /, **arguments: Any) -> None:
        """Send a message to another worker; abort the attempt if this fails. Any thread may call this method."""
        message = {"op": f"optdb_{what}", "reply": False, "session": self.name, "sender": self.address, **arguments}
        self._loop.call_soon_threadsafe(self._enqueue, address, attempt, message)

    def _enqueue(self, address: str, attempt: int, message: dict[str, Any]) -> None:
        if address not in self._outboxes:
            self._outboxes[address] = asyncio.Queue()
            self._writers.append(asyncio.ensure_future(self._write_all(address)))
        self._outboxes[address].put_nowait((attempt, message))

    def deliver(self, sender: str, tag: Tag, arrays: Sequence[np.ndarray], stored: dict[str, Any] | None) -> None:
        """Store a message from another worker; abort the message's attempt if it refers to unknown shared memory."""
        try:
            arrays = arrays if stored is None else self.shared.find(sender, stored)
        except LookupError as error:
            self.mailbox.abort(tag[0], str(error))
        else:
            self.mailbox.deliver(sender, tag, arrays)

    async def _write_all(self, address: str) -> None:
        """Write messages to one worker, in order, over a persistent comm."""
        comm, attempt = None, 0
        try:
            while True:
                attempt, message = await self._outboxes[address].get()
                comm = comm or await connect(address, timeout=self._timeout)
                await comm.write(message)
        except OSError as error:
            # The next message opens a new connection, because the receiving worker may still be alive.
            self._outboxes.pop(address, None)
            self.mailbox.abort(attempt, f"no connection to {address}: {error}")
        finally:
            if comm is not None:
                comm.abort()

    # Steps

    def put(self, job: _Job, task: int) -> None:
        """Pass a part of a batch to the dask task; raise an error if the task has ended or the attempt was aborted."""
        with self._changed:
            if job.attempt <= self._over:
                raise Aborted("the attempt was aborted before the part was received")
            if task <= self.ended_task:
                raise _Idle(f"task {task} ended")
            self._jobs[job.attempt] = job
            self._changed.notify_all()

    def announce(self, committed: int) -> None:
        """Let a waiting task commit the prepared step while the client prepares the next batch."""
        with self._changed:
            self._announced = committed
            self._changed.notify_all()

    def abort(self, attempt: int, reason: str) -> None:
        """Abort an attempt and all earlier attempts."""
        self.mailbox.abort(attempt, reason)
        with self._changed:
            self._over = max(self._over, attempt)
            waiting = [self._jobs.pop(number) for number in list(self._jobs) if number <= attempt]
            self._changed.notify_all()
        for job in waiting:
            self._answer(job, Aborted(reason))

    def run(self, task: int) -> None:
        """Run a step on each part of a batch that arrives; a dask task runs this method."""
        end = time.monotonic() + TASK_S
        try:
            while (job := self._next(task)) is not None:
                result = self._result(job)
                if time.monotonic() > end:
                    # The answer tells the client that the task has ended, so that the client submits another task.
                    self._end_task(task)
                self._answer(job, result)
        finally:
            self._end_task(task)

    def _end_task(self, task: int) -> None:
        with self._changed:
            self.ended_task = max(self.ended_task, task)
            self._changed.notify_all()

    def _next(self, task: int) -> _Job | None:
        """Wait for a part of a batch; return None if no part arrives in time or if the task should end."""
        end = time.monotonic() + IDLE_S
        while True:
            with self._changed:
                if self._jobs:
                    return self._jobs.pop(min(self._jobs))
                left = end - time.monotonic()
                if task <= self.ended_task or left <= 0:
                    # Later parts are rejected.
                    self.ended_task = max(self.ended_task, task)
                    return None
                if self._announced is None:
                    self._changed.wait(left)
                    continue
                announced, self._announced = self._announced, None
            self._commit(announced)
            end = time.monotonic() + IDLE_S

    def _commit(self, committed: int) -> None:
        """Commit the prepared step; errors are reported in the answer to the next part of a batch."""
        try:
            with self._turn:
                self.replica.commit(committed)
        except Exception as error:
            self._commit_error = error

    def _result(self, job: _Job) -> Prepared | BaseException:
        earlier, self._commit_error = self._commit_error, None
        if earlier is not None:
            return earlier
        try:
            with self._turn:
                return self._prepared(job)
        except Exception as error:
            return error

    def _settle(self, committed: int) -> None:
        """Commit or discard the prepared step; raise an error unless the state now includes `committed` steps."""
        if not self.replica.settle(committed):
            raise _Stale(f"its state is the one after {self.replica.steps} steps, not after {committed}")

    def _prepared(self, job: _Job) -> Prepared:
        self._settle(job.committed)
        addresses, rank, active, idle = job.exchange
        self.mailbox.begin(job.attempt)
        self.shared.begin()
        exchange = Exchange(_DaskLink(self, addresses), rank, active, idle, job.attempt)
        return self.replica.complete(self.replica.prepare(job.part, exchange))

    def _answer(self, job: _Job, result: Prepared | BaseException) -> None:
        def set_result() -> None:
            if not job.reply.done():
                job.reply.set_result(result)

        self._loop.call_soon_threadsafe(set_result)

    def state(self, committed: int) -> list[Any]:
        """Return the values of the shared variables after `committed` steps."""
        with self._turn:
            self._settle(committed)
            return self.replica.state()

    def load(self, state: Sequence[Any], steps: int) -> None:
        """Set the shared variables to the state after `steps` steps."""
        with self._turn:
            self.replica.load(state, steps)

    def close(self) -> None:
        """Release the device's memory and close the connections; call this in the event loop's thread."""
        self.abort(_NEVER, "training ended")
        self._end_task(_NEVER)
        for writer in self._writers:
            writer.cancel()
        self.shared.close()


class _Idle(RuntimeError):
    """Raised if a part of a batch arrives while no task is waiting for it."""


class _Stale(RuntimeError):
    """Raised if a worker's state includes a different number of steps than expected."""


def aligned(value: Any) -> Any:
    """Return an aligned copy of an array if necessary, since arrays in messages may be misaligned."""
    return np.require(value, requirements="A") if isinstance(value, np.ndarray) else value


def run_steps(session: str, task: int) -> None:
    """Run several steps in a dask task, one for each part of a batch that arrives."""
    found = _sessions.get((session, get_worker().address))
    if found is not None:
        found.run(task)


class Handlers:
    """Handles a worker's messages. Handlers run in the event loop, and long work runs in threads."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def register(self) -> None:
        """Register these methods as handlers of the worker."""
        for message in (self.commit, self.pieces, self.segment, self.mapped):
            self._server.handlers[f"optdb_{message.__name__}"] = message
        for method in (self.begin, self.step, self.abort, self.state, self.load, self.adopt, self.end):
            self._server.handlers[f"optdb_{method.__name__}"] = _answering(method)

    def _find(self, session: str) -> Session | None:
        return _sessions.get((session, self._server.address))

    def _session(self, session: str) -> Session:
        found = self._find(session)
        if found is None:
            raise RuntimeError(f"{self._server.address} does not take part in {session}: it may have been restarted")
        return found

    async def begin(self, session: str, training: np.ndarray, device: str, timeout: float) -> dict[str, Any]:
        """Create a copy of the state on a device."""
        loop, address = asyncio.get_running_loop(), self._server.address

        def make() -> Session:
            context = context_of(device)
            sharing = [each.address for each in _sessions.values() if each.name == session and each.context == context]
            if sharing:
                raise ValueError(f"{sharing[0]} is in the same process and already uses {device}")
            return Session(
                session, address, loop, replica_of(pickle.loads(training.tobytes()), device), context, timeout
            )

        made = _sessions[session, address] = await asyncio.to_thread(make)
        profile = get_context(made.context).profile
        device_facts = {
            "device kind": profile.device_kind,
            "platform": profile.platform_name,
            "double precision": str(profile.float64),
        }
        return {"facts": device_facts}

    async def step(
        self,
        session: str,
        attempt: int,
        task: int,
        committed: int,
        addresses: list[str],
        rank: int,
        part: dict[str, Any],
    ) -> dict[str, Any]:
        """Receive a part of a batch, and wait for the task that runs a step on it."""
        found = self._session(session)
        reply = asyncio.get_running_loop().create_future()
        given = Part(list(map(aligned, part["arguments"])), part["rows"], part["first"], part["length"])
        active = part["active"]
        found.put(_Job(attempt, committed, given, (addresses, rank, active, len(addresses) - active), reply), task)
        result = await reply
        if isinstance(result, BaseException):
            raise result
        wholes, own = ([to_serialize(np.asarray(value)) for value in values] for values in (result.wholes, result.own))
        return {"wholes": wholes, "own": own, "seconds": result.seconds, "ended_task": found.ended_task}

    def commit(self, session: str, committed: int) -> None:
        """Commit the prepared step if it is among the first `committed` steps; the client does not wait for this."""
        found = self._find(session)
        if found is not None:
            found.announce(committed)

    def pieces(
        self, session: str, sender: str, tag: list[int], arrays: list[np.ndarray], stored: dict[str, Any] | None
    ) -> None:
        """Receive arrays from another worker, or their description if they are in shared memory."""
        found = self._find(session)
        if found is not None:
            found.deliver(sender, tuple(tag), arrays, stored)

    def segment(self, session: str, sender: str, attempt: int, offer: dict[str, Any]) -> None:
        """Map the shared memory that another worker offers; send no answer if the other worker is on another host."""
        found = self._find(session)
        if found is not None and found.shared.map(sender, offer):
            found.post(sender, "mapped", attempt, name=offer["name"])

    def mapped(self, session: str, sender: str, name: str) -> None:
        """Record that another worker has mapped this worker's shared memory."""
        found = self._find(session)
        if found is not None:
            found.shared.confirm(sender, name)

    async def abort(self, session: str, attempt: int, reason: str) -> dict[str, Any]:
        """Abort an attempt."""
        found = self._find(session)
        if found is not None:
            found.abort(attempt, reason)
        return {}

    async def state(self, session: str, committed: int) -> dict[str, Any]:
        """Return the values of the shared variables."""
        values = await asyncio.to_thread(self._session(session).state, committed)
        return {"values": [to_serialize(value) for value in values]}

    async def load(self, session: str, values: list[Any], steps: int) -> dict[str, Any]:
        """Set the values of the shared variables."""
        await asyncio.to_thread(self._session(session).load, list(map(aligned, values)), steps)
        return {}

    async def adopt(self, session: str, donor: str, committed: int) -> dict[str, Any]:
        """Receive the state directly from another worker."""
        answer = await self._server.rpc(donor).optdb_state(session=session, committed=committed)
        if answer["status"] != "OK":
            return answer
        return await self.load(session, answer["values"], committed)

    async def end(self, session: str) -> dict[str, Any]:
        """Release the device's memory."""
        found = _sessions.pop((session, self._server.address), None)
        if found is not None:
            found.close()
            await asyncio.to_thread(found.replica.close)
        return {}


Handler = Callable[..., Awaitable[dict[str, Any]]]


def _answering(handle: Handler) -> Handler:
    """Return a handler that adds status 'OK' to the answer of `handle`, or describes the error that `handle` raises."""

    async def answer(**arguments: Any) -> dict[str, Any]:
        try:
            return {"status": "OK", **await handle(**arguments)}
        except Exception as error:
            return _failure(error)

    return answer


def _failure(error: BaseException) -> dict[str, Any]:
    kinds = {Aborted: "aborted", _Idle: "idle", _Stale: "stale", WorkerTimeout: "timeout"}
    status = next((name for kind, name in kinds.items() if isinstance(error, kind)), "failed")
    return {"status": status, "error": f"{type(error).__name__}: {error}"}

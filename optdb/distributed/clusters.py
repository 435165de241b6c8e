"""Controls the workers of a dask cluster (`ClusterGroup`).

The client counts committed steps. It sends an attempt at a step to all workers. Once all have prepared it, the step is
committed, and the message of the next step says so. If a worker dies before that, the others discard the attempt, and
make another one without it. A message that arrives twice takes effect once, because it contains the number of steps.

A worker that appears later, such as one that dask starts to replace a dead one, receives the functions, then the state
directly from an active worker, and takes part from the next step on.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import pickle
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
from distributed import Client
from distributed.protocol.serialize import to_serialize

from optdb.distributed.errors import StateLost, WorkerFailed, WorkerRefused, WorkerTimeout
from optdb.distributed.local import RestartingCluster
from optdb.distributed.replicas import Part, Prepared
from optdb.distributed.step_plans import LoosePlan, StepPlan
from optdb.distributed.workers import IDLE_S, aligned, device_list, facts, install, run_steps
from optdb.main_guard import check_script
from optdb.runtime.sigint import without_sigint

__all__ = ["ClusterGroup", "cluster_group"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: Seconds between two queries for the scheduler's workers, during a step and between steps.
POLL_S, LOOK_S = 0.1, 0.5
#: Seconds by which the client waits longer than a worker does, so that the worker can report whom it has waited for.
GRACE_S = 5.0


@dataclass
class _Raised:
    """An error that a coroutine has raised in the client's event loop."""

    error: BaseException


def cluster_group(
    plan: StepPlan | LoosePlan, client: Client | None, devices: Sequence[str] | None, timeout: float, title: str
) -> ClusterGroup:
    """Return the controller of a client's workers. Without a client, start a worker for each device of this machine."""
    if client is not None:
        return ClusterGroup(plan, client, devices, timeout, title)
    check_script("starts workers", "name the devices that threads of this process use, devices=[...]")
    devices = devices or local_devices(device_list())
    cluster = RestartingCluster(n_workers=len(devices), threads_per_worker=1, processes=True, dashboard_address=":0")
    client = Client(cluster)
    try:
        return ClusterGroup(plan, client, devices, timeout, title, [client, cluster])
    except BaseException:
        client.close()
        cluster.close()
        raise


def local_devices(found: Sequence[tuple[str, str, int]], count: int | None = None) -> list[str]:
    """Return the devices for the workers of one host.

    Parameters
    ----------
    found : sequence of (str, str, int)
        The host's devices: the text that selects each, its kind, and its compute units.
    count : int, optional
        The number of workers on the host; by default one for each GPU, or two without a GPU.

    Returns
    -------
    list of str
        GPUs in turn; without a GPU, parts of the processor, as far as it has enough compute units.
    """
    gpus = [spec for spec, kind, _ in found if kind == "gpu"]
    if gpus:
        return [gpus[i % len(gpus)] for i in range(count or len(gpus))]
    if not found:
        return ["auto"] * (count or 1)
    spec, _, units = found[0]
    count = count or min(2, units)
    if count == 1 or count > units:
        return [spec] * count
    return [f"{spec}[{i + 1}/{count}]" for i in range(count)]


@dataclass(frozen=True)
class _Member:
    """A worker that takes part in steps."""

    address: str
    name: str
    host: str
    device: str

    def __str__(self) -> str:
        return f"worker {self.name} ({self.address}) on {self.device}"


class _Fault(Exception):
    """Workers have died or have not answered: the step must be repeated without them."""

    def __init__(self, lost: dict[str, str]) -> None:
        super().__init__("; ".join(f"{address}: {reason}" for address, reason in lost.items()))
        #: Reasons by address.
        self.lost = lost


@dataclass
class MadeStep:
    """A step that workers have completed."""

    parts: list[Part]
    prepared: list[Prepared]
    is_computed = True

    def end(self) -> tuple[list[Part], list[Prepared]]:
        """Return the parts, and the workers' prepared results for them, by rank."""
        return self.parts, self.prepared


class ClusterGroup:
    """The workers of a client.

    Parameters
    ----------
    plan : StepPlan or LoosePlan
        The computation of a step.
    client : distributed.Client
        A client that is connected to the scheduler; this process must be able to reach the workers.
    devices : sequence of str, optional
        The devices that the workers of each host use in turn. By default, the worker's own flag `optdb.device`, or else
        the host's devices.
    timeout : float
        Seconds to wait for workers.
    title : str
        The prefix of task names.
    owned : sequence
        Objects to close at the end.
    """

    def __init__(
        self,
        plan: StepPlan | LoosePlan,
        client: Client,
        devices: Sequence[str] | None,
        timeout: float,
        title: str,
        owned: Sequence[Any] = (),
    ) -> None:
        if client.asynchronous:
            raise TypeError("DataParallel takes a Client that is not asynchronous.\nThe cure: Client(address)")
        self._client, self._owned = client, owned
        self._devices, self._timeout = devices, timeout
        self._title = "".join(c if c.isalnum() else "_" for c in title)
        self._session = f"{self._title}-{uuid.uuid4().hex[:8]}"
        self._plan = np.frombuffer(pickle.dumps(plan, protocol=5), "uint8")
        self._facts = facts()
        self._device_facts: dict[str, str] | None = None
        self._members: list[_Member] = []
        self._joining: dict[str, asyncio.Task] = {}
        #: Reasons by address, for workers that are excluded for good.
        self._excluded: dict[str, str] = {}
        self._attempts = itertools.count(1)
        self._turn = asyncio.Lock()
        self._looked = 0.0
        #: For each host, the devices of its workers by address.
        self._assigned: dict[str, dict[str, str]] = {}
        #: By address: the number of the worker's latest task, and its future.
        self._tasks: dict[str, tuple[int, Any]] = {}
        #: By address: since when the worker's task waits for the next step. The entry is removed when the task ends.
        self._waiting_since: dict[str, float] = {}
        #: Futures of tasks that are about to end: when dask's last reference to a future goes, it cancels the task.
        self._ending: list[Any] = []
        self._task_numbers = itertools.count(1)
        self._announcements: set[asyncio.Task] = set()
        #: The number of committed steps.
        self._steps = 0
        #: The last state that the client knows (None for the plan's), and the number of steps that it includes.
        self._origin: tuple[list[Any] | None, int] = (None, 0)
        self._wait_for(self._begin)

    @property
    def names(self) -> list[str]:
        """The names of workers in messages."""
        return [str(member) for member in self._members]

    @property
    def addresses(self) -> list[str]:
        """The addresses of the workers."""
        return [member.address for member in self._members]

    # Members

    async def _begin(self) -> None:
        """Admit all present workers; wait for one if there is none."""
        await self._look(force=True)
        await self._await_members()
        refused = list(self._excluded.values())
        if refused:
            raise WorkerRefused(refused[0])

    async def _known_workers(self) -> dict[str, Any]:
        """Return the scheduler's workers by address."""
        scheduler = self._client.scheduler
        assert scheduler is not None, "the client is connected"
        identity = await scheduler.identity(n_workers=-1)
        return {address: info for address, info in identity["workers"].items() if info.get("status") != "closing"}

    async def _look(self, force: bool = False) -> None:
        """Begin to prepare workers that have appeared."""
        if not force and time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        workers = await self._known_workers()
        for address in [address for address in self._joining if address not in workers]:
            self._joining.pop(address).cancel()
        known = {member.address for member in self._members} | set(self._excluded) | set(self._joining)
        for address, info in workers.items():
            if address not in known:
                self._joining[address] = asyncio.ensure_future(self._prepare(address, info, workers))

    async def _prepare(self, address: str, info: dict[str, Any], workers: dict[str, Any]) -> _Member:
        """Send the functions to a worker; raise `WorkerRefused` if the worker is not suitable."""
        name, host = str(info.get("name", address)), info.get("host", address)
        answer = await self._client.rpc(address).run(function=pickle.dumps(install))
        if answer["status"] != "OK":
            error = answer.get("exception", answer)
            raise WorkerRefused(f"worker {name} ({address}) cannot load optdb: {error!r}.\nThe cure: install it there")
        found = answer["result"]
        _check_same(f"worker {name} ({address})", found["facts"], self._facts, "the client")
        device = self._device_for(address, host, found, workers)
        answer = await self._client.rpc(address).optdb_begin(
            session=self._session, plan=to_serialize(self._plan), device=device, timeout=self._timeout
        )
        if answer["status"] != "OK":
            raise WorkerRefused(f"worker {name} ({address}) cannot use {device}: {answer['error']}")
        if self._device_facts is None:
            self._device_facts = answer["facts"]
        _check_same(f"worker {name} ({address})", answer["facts"], self._device_facts, "the first worker")
        return _Member(address, name, host, device)

    def _device_for(self, address: str, host: str, found: dict[str, Any], workers: dict[str, Any]) -> str:
        """Return a worker's device: the first device of its host that no other worker uses."""
        neighbours = sorted(other for other, info in workers.items() if info.get("host", other) == host)
        if self._devices is not None:
            devices = list(self._devices)
        elif found["device"] not in ("", "cpu"):
            return found["device"]
        else:
            devices = local_devices(found["devices"], len(neighbours))
        taken = self._assigned.setdefault(host, {})
        for other in [other for other in taken if other not in workers]:
            del taken[other]
        free = [device for device in devices if device not in taken.values()]
        taken[address] = free[0] if free else devices[len(taken) % len(devices)]
        return taken[address]

    async def _admit(self) -> None:
        """Send the state to workers that are prepared, and let them take part."""
        for address in [address for address, task in self._joining.items() if task.done()]:
            task = self._joining.pop(address)
            try:
                member = task.result()
                await self._give_state(member)
            except WorkerRefused as error:
                self._excluded[address] = str(error)
                logger.warning("%s", error)
            except (OSError, WorkerFailed, asyncio.CancelledError) as error:
                logger.info("%s has not come in: %s", address, error)
            else:
                self._members.append(member)
                # Sort, so that parts and the order of sums do not depend on which worker was quicker.
                self._members.sort(key=lambda each: (each.name, each.address))

    async def _give_state(self, member: _Member) -> None:
        """Send the present state to a worker: from a member, or from here if there is none."""
        for donor in list(self._members):
            answer = await self._client.rpc(member.address).optdb_adopt(
                session=self._session, donor=donor.address, committed=self._steps
            )
            if answer["status"] == "OK":
                return
        state, steps = self._origin
        if steps != self._steps:
            raise WorkerFailed(f"no worker has the state after {self._steps} steps")
        if state is not None:
            await self._ask(member, "load", values=[to_serialize(value) for value in state], steps=steps)

    async def _await_members(self) -> None:
        """Wait until at least one worker takes part."""
        end = time.monotonic() + self._timeout
        while True:
            await self._look(force=True)
            await self._admit()
            if self._members and not self._joining:
                return
            if not self._joining and self._excluded and not self._members:
                raise WorkerRefused("; ".join(self._excluded.values()))
            if time.monotonic() > end:
                if self._members:
                    return
                waiting = ", ".join(self._joining) or "none has appeared"
                raise WorkerTimeout(f"no worker is ready after {self._timeout:g} seconds; waited for: {waiting}")
            await asyncio.sleep(POLL_S)

    def refresh(self) -> None:
        """Admit workers that have appeared and are ready."""
        self._wait_for(self._in_turn, self._refresh)

    async def _refresh(self) -> None:
        await self._look()
        await self._admit()

    # Steps

    @property
    def steps(self) -> int:
        """The number of committed steps; waits for a step that Ctrl-C has left running."""
        if self._client.status != "running":
            return self._steps
        return self._wait_for(self._in_turn, self._committed)

    begun = steps

    def _wait_for(self, run: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run a coroutine in the client's event loop; return its result.

        The client's own `sync` waits in Python code, whose lock an interrupt may leave locked; the loop would hang.
        """
        answers: SimpleQueue[T | _Raised] = SimpleQueue()
        loop = self._client.loop
        assert loop is not None, "the client has begun"

        async def answer() -> None:
            try:
                answers.put(await run(*args))
            except BaseException as error:
                answers.put(_Raised(error))

        without_sigint(loop.add_callback, answer)
        result = answers.get()
        if isinstance(result, _Raised):
            raise result.error
        return result

    async def _committed(self) -> int:
        return self._steps

    async def _in_turn(self, run: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run a coroutine after earlier ones: after Ctrl-C, an abandoned coroutine continues in the event loop."""
        async with self._turn:
            return await run(*args)

    def begin(self, divide: Callable[[int], list[Part]]) -> MadeStep:
        """Make a step; return the completed step.

        Raises
        ------
        WorkerFailed
            If the step raised an error on a worker; the state is that before the step.
        StateLost
            If no worker is left that has the state.
        """
        return MadeStep(*self._wait_for(self._in_turn, self._step, divide))

    async def _step(self, divide: Callable[[int], list[Part]]) -> tuple[list[Part], list[Prepared]]:
        while True:
            await self._look()
            await self._admit()
            if not self._members:
                raise StateLost(
                    f"all workers have died, and with them the state after {self._steps} steps: "
                    f"{'; '.join(self._excluded.values()) or 'the scheduler has lost them'}.\n"
                    "The cure: with DataParallel(step, checkpoint='folder') a new object goes on from the last file"
                )
            parts = divide(len(self._members))
            try:
                prepared = await self._attempt(parts)
            except _Fault as fault:
                self._drop(fault.lost)
                continue
            self._steps += 1
            self._announce_commit()
            return parts, prepared

    def _drop(self, lost: dict[str, str]) -> None:
        """Remove workers, and continue without them."""
        for member in [member for member in self._members if member.address in lost]:
            logger.warning("%s is out: %s. The step is made anew without it", member, lost[member.address])
            self._members.remove(member)
            self._waiting_since.pop(member.address, None)
            # No worker runs the task any more, so dask may cancel it.
            self._tasks.pop(member.address, None)
            self._excluded[member.address] = f"{member}: {lost[member.address]}"

    async def _attempt(self, parts: list[Part]) -> list[Prepared]:
        """Let all workers prepare a step; raise `_Fault` if one dies."""
        attempt, members = next(self._attempts), list(self._members)
        active = sum(part.rows > 0 for part in parts)
        self._submit_tasks(members)
        calls = {
            asyncio.ensure_future(self._call_step(member, rank, parts[rank], active, attempt)): member
            for rank, member in enumerate(members)
        }
        for call in calls:
            call.add_done_callback(_note_exception)
        answers: dict[str, dict[str, Any]] = {}
        lost: dict[str, str] = {}
        end = time.monotonic() + self._timeout + GRACE_S
        #: By worker for which others waited in vain: the deadline for its answer, and the others' message.
        suspects: dict[str, tuple[float, str]] = {}
        pending = set(calls)
        aborted = False
        while pending:
            done, pending = await asyncio.wait(pending, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
            for call in done:
                member = calls[call]
                error = call.exception()
                if error is None:
                    answer = answers[member.address] = self._noted(member, call.result())
                    if answer["status"] == "timeout":
                        until, why = time.monotonic() + GRACE_S, answer["error"]
                        suspects.update({each.address: (until, why) for each in members if f" {each.address} " in why})
                elif isinstance(error, OSError):
                    lost[member.address] = f"the connection is gone ({error})"
                else:
                    answers[member.address] = {"status": "failed", "error": f"{type(error).__name__}: {error}"}
            if pending and not done:
                gone = {calls[call] for call in pending if calls[call].address not in await self._known_workers()}
                lost.update({member.address: "the scheduler has lost it" for member in gone})
                waiting = {calls[call].address for call in pending}
                for address, (until, why) in suspects.items():
                    if address in waiting and time.monotonic() > until:
                        lost[address] = why
                if time.monotonic() > end:
                    lost.update(dict.fromkeys(waiting, f"no answer within {self._timeout:g} seconds"))
            for call in [call for call in pending if calls[call].address in lost]:
                call.cancel()
                pending.discard(call)
            failed = lost or any(answer["status"] != "OK" for answer in answers.values())
            if failed and not aborted:
                aborted = True
                await self._abort(attempt, [calls[call] for call in pending])
        return self._judged(members, answers, lost)

    def _judged(
        self, members: list[_Member], answers: dict[str, dict[str, Any]], lost: dict[str, str]
    ) -> list[Prepared]:
        """Return the workers' prepared results, or raise an error that determines how to continue."""
        for member in members:
            answer = answers.get(member.address, {"status": "lost"})
            if answer["status"] == "failed" and not lost:
                raise WorkerFailed(f"{member}: {answer['error']}")
            if answer["status"] == "stale":
                lost[member.address] = answer["error"]
        timeouts = {address: answer["error"] for address, answer in answers.items() if answer["status"] == "timeout"}
        if timeouts and not lost:
            # All have answered, but a message between two of them was lost.
            lost.update(timeouts)
        statuses = {answer["status"] for answer in answers.values()}
        if "idle" in statuses and not lost:
            # A task ended just before it received the step: the next attempt submits another task.
            raise _Fault({})
        aborted = [answer["error"] for answer in answers.values() if answer["status"] == "aborted"]
        if aborted and not lost:
            # A connection between two workers has failed, although both are alive.
            raise WorkerFailed(aborted[0])
        if lost:
            if set(lost) >= {member.address for member in members} and any("within" in why for why in lost.values()):
                raise WorkerTimeout("; ".join(f"{member}: {lost[member.address]}" for member in members))
            raise _Fault(lost)
        ordered = [answers[member.address] for member in members]
        return [
            Prepared(list(map(aligned, answer["wholes"])), list(map(aligned, answer["own"])), answer["seconds"])
            for answer in ordered
        ]

    def _noted(self, member: _Member, answer: dict[str, Any]) -> dict[str, Any]:
        """Record whether the worker's task waits for the next step; return the answer."""
        number, _ = self._tasks[member.address]
        if answer["status"] == "OK" and answer["ended_task"] < number:
            self._waiting_since[member.address] = time.monotonic()
        return answer

    def _submit_tasks(self, members: list[_Member]) -> None:
        """Submit a task to each worker that has no task waiting for a step."""
        self._ending = [future for future in self._ending if not future.done()]
        for member in members:
            since = self._waiting_since.pop(member.address, None)
            # The task must not end before the part arrives, so the part is sent well before the deadline.
            if since is not None and time.monotonic() - since < IDLE_S / 2:
                continue
            if member.address in self._tasks:
                self._ending.append(self._tasks[member.address][1])
            number = next(self._task_numbers)
            future = self._client.submit(
                *(run_steps, self._session, number),
                key=(f"{self._title}-step", self._session, number),
                workers=[member.address],
                allow_other_workers=False,
                pure=False,
                priority=10,
            )
            self._tasks[member.address] = number, future

    async def _call_step(self, member: _Member, rank: int, part: Part, active: int, attempt: int) -> dict[str, Any]:
        arguments = [to_serialize(value) if isinstance(value, np.ndarray) else value for value in part.arguments]
        described = {"arguments": arguments, "rows": part.rows, "first": part.first, "length": part.length}
        return await self._client.rpc(member.address).optdb_step(
            session=self._session,
            attempt=attempt,
            task=self._tasks[member.address][0],
            committed=self._steps,
            addresses=[other.address for other in self._members],
            rank=rank,
            part={**described, "active": active},
        )

    def _announce_commit(self) -> None:
        """Tell workers to commit while the next batch is prepared; the next step's message repeats it."""
        for member in self._members:
            call = self._client.rpc(member.address).optdb_commit(
                session=self._session, committed=self._steps, reply=False
            )
            task = asyncio.ensure_future(call)
            self._announcements.add(task)
            task.add_done_callback(self._announcements.discard)
            task.add_done_callback(_note_exception)

    async def _abort(self, attempt: int, members: Sequence[_Member]) -> None:
        """Tell workers that an attempt is over."""
        calls = [
            self._client.rpc(member.address).optdb_abort(
                session=self._session, attempt=attempt, reason="another worker has failed"
            )
            for member in members
        ]
        tasks = [asyncio.ensure_future(call) for call in calls]
        for task in tasks:
            task.add_done_callback(_note_exception)
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE_S)

    # The state

    async def _ask(self, member: _Member, what: str, **arguments: Any) -> dict[str, Any]:
        """Send a request to a worker; raise `WorkerFailed` if it fails."""
        call = getattr(self._client.rpc(member.address), f"optdb_{what}")(session=self._session, **arguments)
        try:
            answer = await asyncio.wait_for(call, self._timeout)
        except asyncio.TimeoutError:
            raise WorkerTimeout(f"{member} has not answered within {self._timeout:g} seconds") from None
        if answer["status"] != "OK":
            raise WorkerFailed(f"{member}: {answer['error']}")
        return answer

    def state(self) -> list[Any]:
        """Return the values of the shared variables, from the first worker that can send them."""
        return self._wait_for(self._in_turn, self._state)

    async def _state(self) -> list[Any]:
        errors = []
        for member in list(self._members):
            try:
                return list(map(aligned, (await self._ask(member, "state", committed=self._steps))["values"]))
            except (OSError, WorkerFailed) as error:
                errors.append(str(error))
        raise StateLost(f"no worker has the state after {self._steps} steps: {'; '.join(errors) or 'all have died'}")

    def load(self, state: Sequence[Any], steps: int) -> None:
        """Give all workers new values, which are the state after `steps` steps."""
        self._wait_for(self._in_turn, self._load, list(state), steps)

    async def _load(self, state: list[Any], steps: int) -> None:
        self._origin, self._steps = (state, steps), steps
        values = [to_serialize(value) for value in state]
        lost = {}
        for member in self._members:
            try:
                await self._ask(member, "load", values=values, steps=steps)
            except (OSError, WorkerFailed) as error:
                lost[member.address] = str(error)
        self._drop(lost)

    def close(self) -> None:
        """Release the workers' device memory, and close the objects that were started here."""
        if self._client.status == "running":
            self._wait_for(self._end)
        without_sigint(self._close_owned)

    def _close_owned(self) -> None:
        for each in self._owned:
            each.close()

    async def _end(self) -> None:
        for task in self._joining.values():
            task.cancel()
        ends = [
            asyncio.ensure_future(self._client.rpc(member.address).optdb_end(session=self._session))
            for member in self._members
        ]
        for call in ends:
            call.add_done_callback(_note_exception)
        self._members = []
        if ends:
            await asyncio.wait(ends, timeout=GRACE_S)
        await asyncio.to_thread(self._await_tasks)

    def _await_tasks(self) -> None:
        """Wait for the tasks that workers were just asked to end."""
        end = time.monotonic() + GRACE_S
        for future in [future for _, future in self._tasks.values()] + self._ending:
            with suppress(TimeoutError, CancelledError):
                future.exception(timeout=max(0.0, end - time.monotonic()))
        self._tasks.clear()
        self._ending.clear()


def _note_exception(call: asyncio.Future) -> None:
    """Retrieve a call's exception, so that asyncio does not complain about a call that was given up."""
    if not call.cancelled():
        call.exception()


def _check_same(who: str, found: dict[str, str], expected: dict[str, str], whose: str) -> None:
    """Raise `WorkerRefused` if a worker's facts differ from the expected ones."""
    different = [
        f"{key} {found.get(key)}, where {whose} has {value}"
        for key, value in expected.items()
        if found.get(key) != value
    ]
    if different:
        raise WorkerRefused(f"{who} has {'; '.join(different)}.\nThe cure: the same on all workers")

"""Controls the workers of a dask cluster (`ClusterGroup`).

The client counts committed steps. Once all workers have prepared a step, it is committed. If a worker dies before the
commit, the others discard the attempt and repeat the step without that worker. Each message contains the number of
committed steps, so a message that arrives twice has no further effect.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from distributed import Client, LocalCluster, Nanny
from distributed.deploy.cluster import Cluster
from distributed.protocol.serialize import to_serialize

from optdb.distributed.cluster_attempts import GRACE_S, StepAttempts, StepFault
from optdb.distributed.cluster_members import ClusterWorker, Membership, WorkerCalls, local_devices, note_exception
from optdb.distributed.errors import StateLost, WorkerFailed, WorkerRefused
from optdb.distributed.replica import Part, Prepared
from optdb.distributed.training_functions import LocalTraining, SynchronousTraining
from optdb.distributed.workers import aligned, device_list
from optdb.main_guard import check_script
from optdb.runtime.sigint import without_sigint

__all__ = ["ClusterGroup", "RestartingCluster", "cluster_group"]

T = TypeVar("T")

#: Settings of the C library for a worker: the amount of freed memory that it keeps, and the minimum size of freed
#: blocks that it returns to the system immediately.
_ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
#: Dask's own setting, which makes a worker return all freed memory to the system.
_OF_DASK = {"MALLOC_TRIM_THRESHOLD_": "65536"}


class _KeepingNanny(Nanny):
    """Starts worker processes that keep freed memory, so that the next sums reuse it.

    The operating system clears new memory, and this takes longer than receiving the sums.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, value in _ALLOCATOR.items():
            # Do not override the user's settings.
            if self.pre_spawn_env.get(name) in (None, _OF_DASK.get(name)):
                self.pre_spawn_env[name] = self.env[name] = value


class RestartingCluster(LocalCluster):
    """A `LocalCluster` that lets nannies restart dead workers.

    `LocalCluster` closes the nanny of a worker that has not restarted 15 s after its death
    (`distributed.deploy.lost-worker-timeout`).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"worker_class": _KeepingNanny, **kwargs})

    def _update_worker_status(self, op: str, msg: Any) -> None:
        Cluster._update_worker_status(self, op, msg)


def cluster_group(
    training: SynchronousTraining | LocalTraining,
    client: Client | None,
    devices: Sequence[str] | None,
    timeout: float,
    title: str,
) -> ClusterGroup:
    """Return a client's workers as a group; without a client, start a worker for each local device."""
    if client is not None:
        return ClusterGroup(training, client, devices, timeout, title)
    check_script("starts workers", "train in threads of this process by naming their devices, devices=[...]")
    devices = devices or local_devices(device_list())
    cluster = RestartingCluster(n_workers=len(devices), threads_per_worker=1, processes=True, dashboard_address=":0")
    client = Client(cluster)
    try:
        return ClusterGroup(training, client, devices, timeout, title, [client, cluster])
    except BaseException:
        client.close()
        cluster.close()
        raise


@dataclass
class CompletedStep:
    """A completed step."""

    parts: list[Part]
    prepared: list[Prepared]
    is_computed = True

    def end(self) -> tuple[list[Part], list[Prepared]]:
        """Return the parts of the batch and the workers' prepared results, both in rank order."""
        return self.parts, self.prepared


class ClusterGroup:
    """A client's workers, which this process must be able to reach.

    The `devices` are assigned to each host's workers in turn. By default, a worker uses the device in its own flag
    `optdb.device`; if the flag is not set, the worker uses one of the host's devices. The `owned` objects are closed
    together with the group.
    """

    def __init__(
        self,
        training: SynchronousTraining | LocalTraining,
        client: Client,
        devices: Sequence[str] | None,
        timeout: float,
        title: str,
        owned: Sequence[Any] = (),
    ) -> None:
        if client.asynchronous:
            raise TypeError("DataParallel needs a Client that is not asynchronous.\nThe cure: Client(address)")
        self._client, self._owned = client, owned
        title = "".join(c if c.isalnum() else "_" for c in title)
        self._session = f"{title}-{uuid.uuid4().hex[:8]}"
        self._calls = WorkerCalls(client, self._session, timeout)
        self._membership = Membership(self._calls, training, devices, self._give_state)
        #: The workers that take part in steps.
        self._members = self._membership.members
        self._attempts = StepAttempts(self._calls, title)
        self._turn = asyncio.Lock()
        self._announcements: set[asyncio.Task] = set()
        #: The number of committed steps.
        self._steps = 0
        #: The client's latest copy of the state (None for the initial state), and the number of steps that led to it.
        self._origin: tuple[list[Any] | None, int] = (None, 0)
        self._wait_for(self._begin)

    @property
    def names(self) -> list[str]:
        """The names of the workers, as used in messages."""
        return [str(member) for member in self._members]

    @property
    def addresses(self) -> list[str]:
        """The addresses of the workers."""
        return [member.address for member in self._members]

    async def _begin(self) -> None:
        """Admit all available workers; if there are none, wait until a worker is available."""
        await self._membership.look(force=True)
        await self._membership.await_members()
        refused = list(self._membership.excluded.values())
        if refused:
            raise WorkerRefused(refused[0])

    async def _give_state(self, member: ClusterWorker) -> None:
        """Send the current state to a new worker, from another worker if possible, else from the client."""
        for donor in list(self._members):
            answer = await self._calls.rpc(member.address).optdb_adopt(
                session=self._session, donor=donor.address, committed=self._steps
            )
            if answer["status"] == "OK":
                return
        state, steps = self._origin
        if steps != self._steps:
            raise WorkerFailed(f"the state after {self._steps} steps was lost: no worker has it")
        if state is not None:
            await self._calls.ask(member, "load", values=[to_serialize(value) for value in state], steps=steps)

    def refresh(self) -> None:
        """Admit new workers that are ready."""
        self._wait_for(self._in_turn, self._refresh)

    async def _refresh(self) -> None:
        await self._membership.look()
        await self._membership.admit()

    @property
    def steps(self) -> int:
        """The number of committed steps; reading it waits for a step that Ctrl-C has left running."""
        if self._client.status != "running":
            return self._steps
        return self._wait_for(self._in_turn, self._committed)

    begun = steps

    def _wait_for(self, run: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run a coroutine in the client's event loop and return its result.

        The client's own `sync` is not used: after an interrupt, its lock may stay locked, so that later calls hang.
        """
        answers: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()
        loop = self._client.loop
        assert loop is not None, "the client was started"

        async def answer() -> None:
            try:
                answers.put((await run(*args), None))
            except BaseException as error:
                answers.put((None, error))

        without_sigint(loop.add_callback, answer)
        result, error = answers.get()
        if error is not None:
            raise error
        return cast(T, result)

    async def _committed(self) -> int:
        return self._steps

    async def _in_turn(self, run: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run a coroutine after all earlier coroutines; it runs to its end even if Ctrl-C interrupts the caller."""
        async with self._turn:
            return await run(*args)

    def begin(self, divide: Callable[[int], list[Part]], keep: bool = False) -> CompletedStep:
        """Run a step and return the completed step, which no longer needs the arguments.

        Raise `WorkerFailed` if a worker raised an error; the state is then the same as before the step. Raise
        `StateLost` if no worker has the state.
        """
        return CompletedStep(*self._wait_for(self._in_turn, self._step, divide))

    async def _step(self, divide: Callable[[int], list[Part]]) -> tuple[list[Part], list[Prepared]]:
        while True:
            await self._membership.look()
            await self._membership.admit()
            if not self._members:
                raise StateLost(
                    f"all workers have died, and with them the state after {self._steps} steps: "
                    f"{'; '.join(self._membership.excluded.values()) or 'the scheduler lost them'}.\n"
                    "The cure: pass a folder, as in DataParallel(step, checkpoint='folder'); a new object then "
                    "continues from the last file"
                )
            parts = divide(len(self._members))
            try:
                prepared = await self._attempts.prepare(parts, self._members, self._steps)
            except StepFault as fault:
                self._drop(fault.lost)
                continue
            self._steps += 1
            self._announce_commit()
            return parts, prepared

    def _drop(self, lost: dict[str, str]) -> None:
        """Remove workers and continue without them."""
        for member in self._membership.drop(lost):
            self._attempts.forget(member)

    def _announce_commit(self) -> None:
        """Tell the workers to commit, without waiting for them.

        The workers commit while the client prepares the next batch. If the message is lost, the next step's message
        contains the same number of committed steps.
        """
        for member in self._members:
            call = self._calls.rpc(member.address).optdb_commit(
                session=self._session, committed=self._steps, reply=False
            )
            task = asyncio.ensure_future(call)
            self._announcements.add(task)
            task.add_done_callback(self._announcements.discard)
            task.add_done_callback(note_exception)

    def state(self) -> list[Any]:
        """Return the values of the shared variables, from the first worker that can send them."""
        return self._wait_for(self._in_turn, self._state)

    async def _state(self) -> list[Any]:
        errors = []
        for member in list(self._members):
            try:
                return list(map(aligned, (await self._calls.ask(member, "state", committed=self._steps))["values"]))
            except (OSError, WorkerFailed) as error:
                errors.append(str(error))
        raise StateLost(f"the state after {self._steps} steps was lost: {'; '.join(errors) or 'all have died'}")

    def load(self, state: Sequence[Any], steps: int) -> None:
        """Set the state of all workers to the state after `steps` steps."""
        self._wait_for(self._in_turn, self._load, list(state), steps)

    async def _load(self, state: list[Any], steps: int) -> None:
        self._origin, self._steps = (state, steps), steps
        values = [to_serialize(value) for value in state]
        lost = {}
        for member in self._members:
            try:
                await self._calls.ask(member, "load", values=values, steps=steps)
            except (OSError, WorkerFailed) as error:
                lost[member.address] = str(error)
        self._drop(lost)

    def close(self) -> None:
        """Release the workers' device memory, and close the objects that this group owns."""
        if self._client.status == "running":
            self._wait_for(self._end)
        without_sigint(self._close_owned)

    def _close_owned(self) -> None:
        for each in self._owned:
            each.close()

    async def _end(self) -> None:
        members = self._membership.leave()
        ends = [
            asyncio.ensure_future(self._calls.rpc(member.address).optdb_end(session=self._session))
            for member in members
        ]
        for call in ends:
            call.add_done_callback(note_exception)
        if ends:
            await asyncio.wait(ends, timeout=GRACE_S)
        await asyncio.to_thread(self._attempts.await_tasks)

"""The dask workers that take part in steps, and the requests that the client sends to them.

A new worker is first prepared: it receives a device and the functions. The prepared worker is then admitted: it
receives the state, and takes part in all later steps.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Client
from distributed.protocol.serialize import to_serialize

from optdb.distributed.errors import WorkerFailed, WorkerRefused, WorkerTimeout
from optdb.distributed.training_functions import LocalTraining, SynchronousTraining
from optdb.distributed.workers import facts, install

logger = logging.getLogger(__name__)

#: Seconds between two queries for the scheduler's workers during a step (`POLL_S`) and between steps (`LOOK_S`).
POLL_S, LOOK_S = 0.1, 0.5


@dataclass(frozen=True)
class ClusterWorker:
    """A worker that takes part in steps."""

    address: str
    name: str
    host: str
    device: str

    def __str__(self) -> str:
        return f"worker {self.name} ({self.address}) on {self.device}"


class WorkerCalls:
    """Sends requests to the workers of a session; `timeout` is in seconds."""

    def __init__(self, client: Client, session: str, timeout: float) -> None:
        self.client, self.session, self.timeout = client, session, timeout

    def rpc(self, address: str) -> Any:
        """Return an object whose methods call a worker's handlers."""
        return self.client.rpc(address)

    async def known_workers(self) -> dict[str, Any]:
        """Return a dict that maps addresses to the scheduler's workers."""
        scheduler = self.client.scheduler
        assert scheduler is not None, "the client is connected"
        identity = await scheduler.identity(n_workers=-1)
        return {address: info for address, info in identity["workers"].items() if info.get("status") != "closing"}

    async def ask(self, member: ClusterWorker, what: str, **arguments: Any) -> dict[str, Any]:
        """Send a request to a worker; raise `WorkerFailed` if the request fails."""
        call = getattr(self.client.rpc(member.address), f"optdb_{what}")(session=self.session, **arguments)
        try:
            answer = await asyncio.wait_for(call, self.timeout)
        except asyncio.TimeoutError:
            raise WorkerTimeout(f"{member} did not answer within {self.timeout:g} seconds") from None
        if answer["status"] != "OK":
            raise WorkerFailed(f"{member}: {answer['error']}")
        return answer


class Membership:
    """The workers that take part in steps, and the workers that are being prepared.

    The `devices`, if any, are assigned to each host's workers in turn. `give_state` sends the state to a prepared
    worker.
    """

    def __init__(
        self,
        calls: WorkerCalls,
        training: SynchronousTraining | LocalTraining,
        devices: Sequence[str] | None,
        give_state: Callable[[ClusterWorker], Awaitable[None]],
    ) -> None:
        self._calls, self._devices, self._give_state = calls, devices, give_state
        self._training = np.frombuffer(pickle.dumps(training, protocol=5), "uint8")
        self._facts = facts()
        self._device_facts: dict[str, str] | None = None
        #: The workers that take part in steps, in rank order.
        self.members: list[ClusterWorker] = []
        self._joining: dict[str, asyncio.Task] = {}
        #: Maps the addresses of permanently excluded workers to reasons.
        self.excluded: dict[str, str] = {}
        self._looked = 0.0
        #: Maps each host to a dict from its workers' addresses to their devices.
        self._assigned: dict[str, dict[str, str]] = {}

    async def look(self, force: bool = False) -> None:
        """Start preparing new workers."""
        if not force and time.monotonic() - self._looked < LOOK_S:
            return
        self._looked = time.monotonic()
        workers = await self._calls.known_workers()
        for address in [address for address in self._joining if address not in workers]:
            self._joining.pop(address).cancel()
        known = {member.address for member in self.members} | set(self.excluded) | set(self._joining)
        for address, info in workers.items():
            if address not in known:
                self._joining[address] = asyncio.ensure_future(self._prepare(address, info, workers))

    async def _prepare(self, address: str, info: dict[str, Any], workers: dict[str, Any]) -> ClusterWorker:
        """Send the functions to a worker; raise `WorkerRefused` if its settings or device differ from the others'."""
        name, host = str(info.get("name", address)), info.get("host", address)
        answer = await self._calls.rpc(address).run(function=pickle.dumps(install))
        if answer["status"] != "OK":
            error = answer.get("exception", answer)
            raise WorkerRefused(
                f"worker {name} ({address}) cannot load optdb: {error!r}.\n"
                "The cure: pip install 'optdb[distributed]' on that worker's machine"
            )
        found = answer["result"]
        _check_same(f"worker {name} ({address})", found["facts"], self._facts, "the client")
        device = self._device_for(address, host, found, workers)
        answer = await self._calls.rpc(address).optdb_begin(
            session=self._calls.session,
            training=to_serialize(self._training),
            device=device,
            timeout=self._calls.timeout,
        )
        if answer["status"] != "OK":
            raise WorkerRefused(f"worker {name} ({address}) cannot use {device}: {answer['error']}")
        if self._device_facts is None:
            self._device_facts = answer["facts"]
        _check_same(f"worker {name} ({address})", answer["facts"], self._device_facts, "the first worker")
        return ClusterWorker(address, name, host, device)

    def _device_for(self, address: str, host: str, found: dict[str, Any], workers: dict[str, Any]) -> str:
        """Return the first device on a worker's host that is not used by any of the host's other workers."""
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

    async def admit(self) -> None:
        """Send the state to all prepared workers, and make them members."""
        for address in [address for address, task in self._joining.items() if task.done()]:
            task = self._joining.pop(address)
            try:
                member = task.result()
                await self._give_state(member)
            except WorkerRefused as error:
                self.excluded[address] = str(error)
                logger.warning("%s", error)
            except (OSError, WorkerFailed, asyncio.CancelledError) as error:
                logger.info("worker %s could not join: %s", address, error)
            else:
                self.members.append(member)
                # Sort the workers by name, so that results do not depend on which worker is ready first.
                self.members.sort(key=lambda each: (each.name, each.address))

    async def await_members(self) -> None:
        """Wait until at least one worker takes part."""
        end = time.monotonic() + self._calls.timeout
        while True:
            await self.look(force=True)
            await self.admit()
            if self.members and not self._joining:
                return
            if not self._joining and self.excluded and not self.members:
                raise WorkerRefused("; ".join(self.excluded.values()))
            if time.monotonic() > end:
                if self.members:
                    return
                waiting = ", ".join(self._joining) or "none was found"
                raise WorkerTimeout(f"no worker is ready after {self._calls.timeout:g} seconds; waited for: {waiting}")
            await asyncio.sleep(POLL_S)

    def drop(self, lost: dict[str, str]) -> list[ClusterWorker]:
        """Remove workers, exclude them permanently, and return them."""
        dropped = [member for member in self.members if member.address in lost]
        for member in dropped:
            logger.warning("%s is dropped: %s. The step is repeated without it", member, lost[member.address])
            self.members.remove(member)
            self.excluded[member.address] = f"{member}: {lost[member.address]}"
        return dropped

    def leave(self) -> list[ClusterWorker]:
        """Stop preparing workers, and remove and return all members."""
        for task in self._joining.values():
            task.cancel()
        members = self.members.copy()
        self.members.clear()
        return members


def local_devices(found: Sequence[tuple[str, str, int]], count: int | None = None) -> list[str]:
    """Return the devices that the workers on one host use, in round-robin order.

    Without a GPU, workers get equal parts of the CPU device, or the whole device if it has too few compute units.
    `found` lists, for each device, the text that selects it, its kind, and its number of compute units. By default,
    there is one worker for each GPU; without a GPU, there are two workers.
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


def note_exception(call: asyncio.Future) -> None:
    """Retrieve the exception of an abandoned call, so that asyncio does not warn about it."""
    if not call.cancelled():
        call.exception()


def _check_same(who: str, found: dict[str, str], expected: dict[str, str], whose: str) -> None:
    """Raise `WorkerRefused` if a worker's versions or settings differ from the expected ones."""
    different = [
        f"{key} {found.get(key)}, where {whose} has {value}"
        for key, value in expected.items()
        if found.get(key) != value
    ]
    if different:
        raise WorkerRefused(
            f"{who} has {'; '.join(different)}.\nThe cure: use the same versions and settings on all workers"
        )

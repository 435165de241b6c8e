"""`StepAttempts`, which lets the workers of a dask cluster prepare a step.

The client sends each worker its part of the batch. While a step is prepared, a dask task runs on each worker, so that
dask counts the worker as busy.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

import numpy as np
from distributed.protocol.serialize import to_serialize

from optdb.distributed.cluster_members import POLL_S, ClusterWorker, WorkerCalls, note_exception
from optdb.distributed.errors import WorkerFailed, WorkerTimeout
from optdb.distributed.replica import Part, Prepared
from optdb.distributed.workers import IDLE_S, aligned, run_steps

#: The client waits this many seconds longer than a worker, so that the worker can report which workers did not answer.
GRACE_S = 5.0


class StepFault(Exception):
    """Raised if workers have died or have not answered; the step must be repeated without them."""

    def __init__(self, lost: dict[str, str]) -> None:
        super().__init__("; ".join(f"{address}: {reason}" for address, reason in lost.items()))
        #: Maps the addresses of lost workers to the reasons for their loss.
        self.lost = lost


class StepAttempts:
    """Lets workers prepare steps in dask tasks, whose names start with `title`."""

    def __init__(self, calls: WorkerCalls, title: str) -> None:
        self._calls, self._title = calls, title
        self._numbers = itertools.count(1)
        #: Maps a worker's address to the number and future of its latest task.
        self._tasks: dict[str, tuple[int, Any]] = {}
        #: Maps a worker's address to the time at which its task began to wait for a step; the entry is removed when the
        #: task ends.
        self._waiting_since: dict[str, float] = {}
        #: Futures of tasks that are about to end: dask cancels a task when the last reference to its future is dropped.
        self._ending: list[Any] = []
        self._task_numbers = itertools.count(1)

    async def prepare(self, parts: list[Part], members: list[ClusterWorker], committed: int) -> list[Prepared]:
        """Let all workers prepare the step that follows `committed` steps; raise `StepFault` if a worker dies."""
        attempt, members = next(self._numbers), list(members)
        active = sum(part.rows > 0 for part in parts)
        step = {
            "attempt": attempt,
            "committed": committed,
            "addresses": [member.address for member in members],
        }
        self._submit_tasks(members)
        calls = {
            asyncio.ensure_future(self._call_step(member, rank, parts[rank], active, step)): member
            for rank, member in enumerate(members)
        }
        for call in calls:
            call.add_done_callback(note_exception)
        answers: dict[str, dict[str, Any]] = {}
        lost: dict[str, str] = {}
        end = time.monotonic() + self._calls.timeout + GRACE_S
        #: Maps the address of each worker that does not answer another worker to the time at which the silent worker
        #: counts as lost, and to the other worker's message.
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
                    lost[member.address] = f"the connection was lost ({error})"
                else:
                    answers[member.address] = {"status": "failed", "error": f"{type(error).__name__}: {error}"}
            if pending and not done:
                gone = {calls[call] for call in pending if calls[call].address not in await self._calls.known_workers()}
                lost.update({member.address: "the scheduler lost it" for member in gone})
                waiting = {calls[call].address for call in pending}
                for address, (until, why) in suspects.items():
                    if address in waiting and time.monotonic() > until:
                        lost[address] = why
                if time.monotonic() > end:
                    lost.update(dict.fromkeys(waiting, f"no answer within {self._calls.timeout:g} seconds"))
            for call in [call for call in pending if calls[call].address in lost]:
                call.cancel()
                pending.discard(call)
            failed = lost or any(answer["status"] != "OK" for answer in answers.values())
            if failed and not aborted:
                aborted = True
                await self._abort(attempt, [calls[call] for call in pending])
        return self._judged(members, answers, lost)

    def _judged(
        self, members: list[ClusterWorker], answers: dict[str, dict[str, Any]], lost: dict[str, str]
    ) -> list[Prepared]:
        """Return the workers' prepared results, or raise an error that determines how training continues."""
        for member in members:
            answer = answers.get(member.address, {"status": "lost"})
            if answer["status"] == "failed" and not lost:
                raise WorkerFailed(f"{member}: {answer['error']}")
            if answer["status"] == "stale":
                lost[member.address] = answer["error"]
        timeouts = {address: answer["error"] for address, answer in answers.items() if answer["status"] == "timeout"}
        if timeouts and not lost:
            # All workers have answered the client, but a message between two of them was lost.
            lost.update(timeouts)
        statuses = {answer["status"] for answer in answers.values()}
        if "idle" in statuses and not lost:
            # A worker's task ended just before it received the step, so the next attempt submits another task.
            raise StepFault({})
        aborted = [answer["error"] for answer in answers.values() if answer["status"] == "aborted"]
        if aborted and not lost:
            # A connection between two workers has failed, although both are alive.
            raise WorkerFailed(aborted[0])
        if lost:
            if set(lost) >= {member.address for member in members} and any("within" in why for why in lost.values()):
                raise WorkerTimeout("; ".join(f"{member}: {lost[member.address]}" for member in members))
            raise StepFault(lost)
        ordered = [answers[member.address] for member in members]
        return [
            Prepared(list(map(aligned, answer["wholes"])), list(map(aligned, answer["own"])), answer["seconds"])
            for answer in ordered
        ]

    def _noted(self, member: ClusterWorker, answer: dict[str, Any]) -> dict[str, Any]:
        """Record whether the worker's task is waiting for the next step, and return the worker's answer."""
        number, _ = self._tasks[member.address]
        if answer["status"] == "OK" and answer["ended_task"] < number:
            self._waiting_since[member.address] = time.monotonic()
        return answer

    def _submit_tasks(self, members: list[ClusterWorker]) -> None:
        """Submit a task to each worker that has no task waiting for a step."""
        self._ending = [future for future in self._ending if not future.done()]
        for member in members:
            since = self._waiting_since.pop(member.address, None)
            # Reuse a task only well before its deadline, because the task must not end before the worker's part of the
            # batch arrives.
            if since is not None and time.monotonic() - since < IDLE_S / 2:
                continue
            if member.address in self._tasks:
                self._ending.append(self._tasks[member.address][1])
            number = next(self._task_numbers)
            future = self._calls.client.submit(
                *(run_steps, self._calls.session, number),
                key=(f"{self._title}-step", self._calls.session, number),
                workers=[member.address],
                allow_other_workers=False,
                pure=False,
                priority=10,
            )
            self._tasks[member.address] = number, future

    async def _call_step(
        self, member: ClusterWorker, rank: int, part: Part, active: int, step: dict[str, Any]
    ) -> dict[str, Any]:
        arguments = [to_serialize(value) if isinstance(value, np.ndarray) else value for value in part.arguments]
        described = {"arguments": arguments, "rows": part.rows, "first": part.first, "length": part.length}
        return await self._calls.rpc(member.address).optdb_step(
            session=self._calls.session,
            task=self._tasks[member.address][0],
            rank=rank,
            part={**described, "active": active},
            **step,
        )

    async def _abort(self, attempt: int, members: Sequence[ClusterWorker]) -> None:
        """Tell workers that an attempt is over."""
        calls = [
            self._calls.rpc(member.address).optdb_abort(
                session=self._calls.session, attempt=attempt, reason="another worker failed"
            )
            for member in members
        ]
        tasks = [asyncio.ensure_future(call) for call in calls]
        for task in tasks:
            task.add_done_callback(note_exception)
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE_S)

    def forget(self, member: ClusterWorker) -> None:
        """Forget the task of a worker that no longer takes part in steps, so that dask can cancel the task."""
        self._waiting_since.pop(member.address, None)
        self._tasks.pop(member.address, None)

    def await_tasks(self) -> None:
        """Wait, for at most `GRACE_S` seconds, until all tasks have ended."""
        end = time.monotonic() + GRACE_S
        for future in [future for _, future in self._tasks.values()] + self._ending:
            with suppress(TimeoutError, CancelledError):
                future.exception(timeout=max(0.0, end - time.monotonic()))
        self._tasks.clear()
        self._ending.clear()

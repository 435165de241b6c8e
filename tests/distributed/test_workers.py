"""A worker without a cluster: its tasks compute steps as soon as the steps arrive, and commit them when requested."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

pytest.importorskip("distributed")

from optdb.distributed import clusters, workers
from optdb.distributed.errors import Aborted
from optdb.distributed.replica import Part, Prepared, Replica
from optdb.distributed.workers import Session, _DaskLink, _Idle, _Job
from optdb.runtime.commands import CommandList


class Recorded(Replica):
    """A replica that records its method calls."""

    def __init__(self):
        super().__init__(None, None)
        self.done = []
        self.error = None
        self.committed = threading.Event()

    def _launch(self, part, exchange, begin, ending):
        begin(CommandList())

    def _finish(self, part, exchange):
        self.done.append("prepare")
        return [], None

    def _commit(self, agree):
        if self.error is not None:
            raise self.error
        self.done.append("commit")
        self.committed.set()


@pytest.fixture
def session(monkeypatch):
    """Return a session whose tasks wait up to 60 seconds for a step, which is longer than any test takes."""
    monkeypatch.setattr(workers, "IDLE_S", 60.0)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield Session("train", "tcp://here", loop, Recorded(), "context", 60.0)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def task(session):
    """Run task 1."""
    thread = threading.Thread(target=session.run, args=(1,))
    thread.start()
    yield thread
    session.close()
    thread.join()


def job(session, attempt, committed):
    reply = session._loop.create_future()
    return _Job(attempt, committed, Part([], 1, 0, 1), ([session.address], 0, 1, 0), reply)


def answer(session, job):
    async def wait():
        return await job.reply

    return asyncio.run_coroutine_threadsafe(wait(), session._loop).result(60)


def step(session, attempt, committed, task=1):
    given = job(session, attempt, committed)
    session.put(given, task)
    return answer(session, given)


def test_one_task_computes_steps_one_after_the_other(session, task):
    for number in range(3):
        assert isinstance(step(session, number + 1, number), Prepared)
    assert session.replica.done == ["prepare", "commit", "prepare", "commit", "prepare"]
    assert session.ended_task == 0 and task.is_alive()


def test_a_task_ends_if_no_step_comes_and_refuses_those_that_come_later(session, monkeypatch):
    monkeypatch.setattr(workers, "IDLE_S", 0.0)
    session.run(1)
    assert session.ended_task == 1
    with pytest.raises(_Idle, match="task 1 ended"):
        session.put(job(session, 1, 0), 1)
    session.put(job(session, 1, 0), 2)
    session.run(2)
    assert session.replica.done == ["prepare"]


def test_a_task_ends_with_the_step_it_is_at_once_its_time_is_over(session, monkeypatch):
    monkeypatch.setattr(workers, "TASK_S", 0.0)
    given = job(session, 1, 0)
    session.put(given, 1)
    session.run(1)
    # The answer reports that the task has ended, so that the client schedules another one.
    assert isinstance(answer(session, given), Prepared) and session.ended_task == 1


def test_a_part_of_an_attempt_that_was_given_up_is_refused(session):
    session.abort(3, "worker 7 has died")
    with pytest.raises(Aborted):
        session.put(job(session, 3, 0), 1)
    session.put(job(session, 4, 0), 1)


def test_a_commit_that_is_announced_runs_before_the_next_step(session, task):
    step(session, 1, 0)
    session.announce(1)
    assert session.replica.committed.wait(60)
    step(session, 2, 1)
    assert session.replica.done == ["prepare", "commit", "prepare"]


def test_an_announcement_that_comes_late_leaves_the_prepared_step_alone():
    replica = Recorded()
    exchange = type("Alone", (), {"seconds": 0.0})
    replica.prepare(None, exchange)
    replica.commit(0)
    assert replica.done == ["prepare"]
    assert replica.settle(1)
    replica.prepare(None, exchange)
    replica.commit(1)
    assert replica.settle(2) and replica.steps == 2
    assert replica.done == ["prepare", "commit"] * 2


def test_an_error_of_an_announced_commit_is_the_answer_to_the_next_step(session, task):
    step(session, 1, 0)
    session.replica.error = MemoryError("no memory on the device")
    session._commit(1)
    assert isinstance(step(session, 2, 1), MemoryError)
    # The step stays prepared, and the next attempt commits it.
    session.replica.error = None
    assert isinstance(step(session, 3, 1), Prepared)
    assert session.replica.done == ["prepare", "commit", "prepare"]


def test_arrays_of_a_message_are_aligned(session):
    unaligned = np.frombuffer(bytearray(17), "uint8")[1:].view("float64")
    assert not unaligned.flags.aligned
    session.mailbox.deliver("tcp://there", (1, 0, 0), [unaligned])
    (array,) = _DaskLink(session, ["tcp://there"]).receive(0, (1, 0, 0))
    assert array.flags.aligned and array.shape == (2,)


def test_shared_memory_that_is_not_mapped_aborts_the_attempt(session):
    session.deliver("tcp://there", (1, 0, 0), [], {"name": "optdb-x", "layout": []})
    with pytest.raises(Aborted, match="optdb-x of tcp://there is not mapped"):
        session.mailbox.take("tcp://there", (1, 0, 0))


def test_a_script_without_a_guard_starts_no_workers(monkeypatch):
    def unguarded(deed, alternative):
        raise RuntimeError(f"{deed}: {alternative}")

    monkeypatch.setattr(clusters, "check_script", unguarded)
    monkeypatch.setattr(clusters, "RestartingCluster", None)
    with pytest.raises(RuntimeError, match=r"starts workers: train in threads .* devices=\[\.\.\.\]"):
        clusters.cluster_group(None, None, ["pocl"], 1.0, "step")

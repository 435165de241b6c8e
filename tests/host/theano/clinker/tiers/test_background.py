"""Threads build the missing modules that are in a queue."""

from __future__ import annotations

import gc
import threading
import time

import pytest

from optdb.host.theano.clinker.tiers.background import Background
from tests.interrupts import ctrl_c_interrupts, interrupted_everywhere  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("ctrl_c_interrupts")


class Waiting:
    """A fake thunk that waits for a compile job."""

    seconds = 0.0


def built(command, is_needed, env=None):
    return True


def wait(queue, *jobs):
    return queue.wait(jobs, time.monotonic() + 10)


def test_a_thread_that_ends_is_not_relied_on():
    queue = Background(built)
    take, idle, resume = queue._take, threading.Event(), threading.Event()

    def take_and_pause():
        jobs = take()
        if not jobs:
            idle.set()
            resume.wait(10)
        return jobs

    queue._take = take_and_pause
    thunk = Waiting()
    for name in ("first", "second"):
        job = queue.extension(name, [], {})
        job.add(thunk)
        queue.start()
        assert wait(queue, job), f"nobody built the {name} job"
        assert idle.wait(10)
    resume.set()


@pytest.mark.parametrize("failures, is_built", [(1, True), (2, False)])
def test_an_extension_that_another_process_disturbs_is_built_again(failures, is_built):
    runs = []

    def run(command, is_needed, env=None):
        runs.append(command)
        return len(runs) > failures

    queue = Background(run)
    job = queue.extension("one", [], {})
    thunk = Waiting()
    job.add(thunk)
    queue.start()
    assert wait(queue, job)
    assert (job.state == "done") is is_built
    assert len(runs) == 2


def test_a_job_whose_thunk_is_being_made_is_not_dropped():
    queue = Background(built)
    job = queue.extension("one", [], {})
    assert queue._take() == [job]


@pytest.mark.usefixtures("alone")
def test_a_job_that_nothing_needs_is_dropped_and_not_waited_for():
    queue = Background(built)
    job = queue.extension("one", [], {})
    thunk = Waiting()
    job.add(thunk)
    assert job.is_needed
    del thunk
    gc.collect()
    assert queue._take() == []
    assert wait(queue, job)
    again = queue.extension("one", [], {})
    assert again is not job
    assert queue._take() == [again]


@pytest.mark.usefixtures("alone")
def test_a_job_has_a_claim_for_each_thunk():
    queue = Background(built)
    job = queue.extension("one", [], {})
    assert queue.extension("one", [], {}) is job
    job.add(Waiting())
    gc.collect()
    assert job.is_needed
    job.add(Waiting())
    gc.collect()
    assert not job.is_needed


def test_an_interrupt_of_a_waiting_thread_leaves_no_lock_locked():
    queue = Background(built)
    job = queue.extension("one", [], {})
    job.add(thunk := Waiting())
    for _ in interrupted_everywhere(lambda: queue.wait([job], time.monotonic())):
        pass
    queue.start()
    assert wait(queue, job)
    assert thunk.seconds == 0

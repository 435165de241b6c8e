"""Commands are timed while other commands are in the same device's queue."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from optdb.runtime import grid_failures
from optdb.runtime.arrays import from_host, to_host
from optdb.runtime.context import Context
from optdb.runtime.dispatch import listened
from optdb.runtime.errors import DeviceError
from optdb.runtime.library import cl
from optdb.runtime.timing import CommandRange, Timer, Times


def test_a_constant_array_is_on_the_device_before_others_may_use_it():
    context, timer, made = Context("opencl"), Timer(), []
    gate = cl.UserEvent(context.cl_context)
    with listened(timer):
        from_host(context, np.zeros(3))  # creates the timed queue
    ((_, timed),) = timer._queues.values()
    cl.enqueue_barrier(timed, wait_for=[gate])

    def upload():
        with listened(timer):
            made.append(from_host(context, np.arange(3), constant=True))

    thread = threading.Thread(target=upload)
    thread.start()
    thread.join(0.2)
    early = list(made)
    gate.set_status(cl.command_execution_status.COMPLETE)
    thread.join(60)
    assert not early and to_host(made[0]).tolist() == [0, 1, 2]


@pytest.mark.parametrize("has_failed", [False, True])
def test_a_range_waits_for_no_later_commands(has_failed):
    context, errors = Context("opencl"), []
    queue, gate = context.queue, cl.UserEvent(context.cl_context)
    words = np.array([1, 0, has_failed], np.uint32)
    cl.enqueue_copy(queue, grid_failures.grid_words(context.cl_context), words)
    span = CommandRange(context)
    from_host(context, np.zeros(3))
    span.stop()

    def wait():
        try:
            span.wait()
        except DeviceError as error:
            errors.append(error)

    cl.enqueue_barrier(queue, wait_for=[gate])
    thread = threading.Thread(target=wait)
    thread.start()
    # Raising the error resets the flag words, so the error is raised only when other failing launches have ended.
    thread.join(0.2 if has_failed else 60)
    was_waiting = thread.is_alive()
    gate.set_status(cl.command_execution_status.COMPLETE)
    thread.join(60)
    assert was_waiting == has_failed == bool(errors)
    assert not has_failed or "was aborted" in str(errors[0])


def test_a_range_does_not_end_before_it_starts(monkeypatch):
    span = CommandRange(Context("opencl"))
    span.stop()
    marks = [SimpleNamespace(profile=SimpleNamespace(queued=0, submit=0, end=end)) for end in (270, 200)]
    monkeypatch.setattr(span, "wait", lambda: None)
    span._first, span._last = marks
    assert span.times() == Times(0, 0, 200, 200)
    span._last, span._first = marks
    assert span.times() == Times(0, 0, 200, 270)

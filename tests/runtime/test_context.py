"""Contexts, and their behaviour in forked processes."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from dataclasses import replace

import numpy as np
import pytest

from optdb.runtime import arrays, grid_failures
from optdb.runtime import context as context_module
from optdb.runtime.context import Context
from optdb.runtime.errors import DeviceError
from tests.processes import run_code


def test_what_a_context_has(context):
    assert context.queue.context == context.cl_context
    assert context.queue.device == context.device
    assert context.profile.device_kind in ("cpu", "gpu")
    assert context.spec == "opencl"
    assert context.device.name.strip() in repr(context)
    # The queue is in order: only this guarantees that an array is filled before it is read.
    assert not context.queue.properties


@pytest.mark.usefixtures("alone")
def test_a_driver_that_refuses_another_context(monkeypatch):
    def refuse(*args):
        raise context_module.cl.RuntimeError("Context failed: OUT_OF_HOST_MEMORY")

    monkeypatch.setattr(context_module.cl, "Context", refuse)
    with pytest.raises(DeviceError, match=r"OUT_OF_HOST_MEMORY.*python -m optdb devices"):
        Context("opencl")


@pytest.mark.usefixtures("alone")
def test_a_driver_that_has_room_once_others_are_gone(monkeypatch):
    """Before a failed request is repeated, garbage is collected, because reference cycles can keep contexts alive."""
    kept = Context("opencl")
    kept.kept["a cycle"] = kept
    gone, made = weakref.ref(kept), context_module.cl.Context
    del kept

    def refuse(devices):
        if gone() is not None:
            raise context_module.cl.RuntimeError("Context failed: OUT_OF_HOST_MEMORY")
        return made(devices)

    monkeypatch.setattr(context_module.cl, "Context", refuse)
    assert Context("opencl").queue


def test_a_context_ends_with_its_last_use():
    gc.disable()
    try:
        context = Context("opencl")
        with context.turn():
            gone = weakref.ref(context)
        del context
        assert gone() is None
    finally:
        gc.enable()


def test_a_context_that_ends_waits_for_its_queue():
    context, cl = Context("opencl"), context_module.cl
    gate, memory = cl.UserEvent(context.cl_context), cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE, 64)
    event = cl.enqueue_fill_buffer(context.queue, memory, b"0", 0, 64, wait_for=[gate])
    context.queue.flush()
    opening = threading.Timer(0.1, gate.set_status, [cl.command_execution_status.COMPLETE])
    opening.start()
    del context
    assert event.command_execution_status == cl.command_execution_status.COMPLETE
    opening.join()


@pytest.mark.parametrize("has_failed", [False, True])
def test_a_context_that_ends_leaves_no_words_of_launches_that_are_done(has_failed):
    context, cl = Context("opencl"), context_module.cl
    queue, words = context.queue, grid_failures.grid_words(context.cl_context)
    cl.enqueue_copy(queue, words, np.array([1, 0, has_failed], np.uint32))
    del context
    assert (grid_failures.known_words(queue) is words) == has_failed
    if has_failed:
        with pytest.raises(DeviceError, match="was aborted"):
            grid_failures.check_launches(queue)
        del grid_failures._words[queue.context.int_ptr]


def test_dtypes(context, monkeypatch):
    numbers = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
    for dtype in ["bool", "float16", "float32", "complex64", *numbers, np.dtype("int32"), np.float32]:
        assert context.unsupported_reason(dtype) is None
    monkeypatch.setattr(context, "profile", replace(context.profile, float64=True))
    assert context.unsupported_reason("float64") is context.unsupported_reason("complex128") is None
    monkeypatch.setattr(context, "profile", replace(context.profile, float64=False))
    assert "has no double precision" in context.unsupported_reason("float64")
    assert "has no double precision" in context.unsupported_reason("complex128")
    monkeypatch.setattr(context, "profile", replace(context.profile, int64=False))
    assert "has no 64-bit integers" in context.unsupported_reason("uint64")
    assert context.unsupported_reason("int32") is None
    assert context.unsupported_reason("float128") == "OpenCL has no type float128"
    assert context.unsupported_reason("object") == "OpenCL has no type object"


def test_contexts_are_apart(context):
    other = Context("opencl")
    assert other.cl_context != context.cl_context
    assert arrays.from_host(other, np.ones(2)).queue == other.queue


IN_A_FORK = """
    import os, sys
    from optdb.runtime.context import Context
    from optdb.runtime.errors import ForkedContext
    context = Context("opencl")
    child = os.fork()
    if child == 0:
        refused = []
        for use in (lambda: context.queue, lambda: context.cl_context, lambda: Context("opencl")):
            try:
                use()
            except ForkedContext as error:
                refused.append(str(error))
        print(len(refused), "spawn" in refused[0], str(os.getppid()) in refused[0], flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    context.queue
    print("fine")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forks_are_refused():
    assert run_code(IN_A_FORK).stdout.split("\n")[:2] == ["3 True True", "fine"]


@pytest.mark.slow
def test_forks_before_the_first_use_are_fine():
    code = """
        import os
        import optdb.runtime.context
        child = os.fork()
        optdb.runtime.context.Context("opencl").queue
        if child == 0:
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run_code(code).stdout.strip() == "7"


UNFINISHED = """
import atexit

def tell():
    print(event.command_execution_status == cl.command_execution_status.COMPLETE)

atexit.register(tell)  # what is registered first is called last

from optdb.runtime.context import Context
from optdb.runtime.library import cl

context = Context("opencl")
gate = cl.UserEvent(context.cl_context)
memory = cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE, 64)
event = cl.enqueue_fill_buffer(context.queue, memory, b"0", 0, 64, wait_for=[gate])
context.queue.flush()
assert event.command_execution_status != cl.command_execution_status.COMPLETE
atexit.register(gate.set_status, cl.command_execution_status.COMPLETE)
"""


def test_the_end_of_a_program_waits_for_the_queue():
    done = run_code(UNFINISHED)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n"


def test_what_fails_at_the_end_of_a_program_is_logged(monkeypatch, caplog):
    class Queue:
        def finish(self):
            raise context_module.cl.RuntimeError("clFinish failed: OUT_OF_RESOURCES")

    context = Context("opencl")
    monkeypatch.setattr(context, "_queue", Queue())
    context_module._finish_all()
    assert context.profile.name in caplog.text
    assert "OUT_OF_RESOURCES" in caplog.text


def test_a_fork_does_not_wait_for_its_parents_queue(monkeypatch):
    context = Context("opencl")
    monkeypatch.setattr(context, "_pid", os.getpid() + 1)
    monkeypatch.setattr(context, "_queue", None)
    context_module._finish_all()

"""Command lists become batches if they are enqueued often; batches have the same effect as their commands."""

import ctypes
import functools
import logging
import os
import shlex
import subprocess
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optdb import user_cache
from optdb.runtime import commands, driver_batches
from optdb.runtime.commands import CommandList, EnqueueCopy, EnqueueFill, EnqueueKernel, EnqueueUpload, Memory
from optdb.runtime.context import Context
from optdb.runtime.context_options import BatchThresholds, ContextOptions
from optdb.runtime.driver_batches import Batch, PreparedCall, driver_calls, icd_loader
from optdb.runtime.library import cl
from tests.opencl_device import runtime_context
from tests.processes import output

pytestmark = pytest.mark.skipif(not driver_batches.loop_library(), reason="there is no C compiler")

LENGTH = 64
UPDATE = """
__kernel void update(__global float *x, ulong x_off, float by) {
    x = (__global float *)((__global char *)x + x_off);
    const size_t i = get_global_id(0) + 4 * get_global_id(1);
    x[i] = x[i] * by + i;
}
"""


@pytest.fixture(scope="module")
def program():
    return cl.Program(runtime_context().cl_context, UPDATE).build()


@pytest.fixture
def arrays():
    """Return the runtime's queue, and two buffers of integers."""
    context, flags = runtime_context(), cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    values = [np.arange(LENGTH, dtype=np.float32), np.arange(LENGTH, dtype=np.float32) % 7]
    return context.queue, [cl.Buffer(context.cl_context, flags, hostbuf=value) for value in values]


def read(queue, buffers):
    found = np.empty((len(buffers), LENGTH), np.float32)
    for row, buffer in zip(found, buffers):
        cl.enqueue_copy(queue, row, buffer)
    return found


def expected(specs, times):
    """Compute the results of commands with NumPy."""
    x = np.stack([np.arange(LENGTH, dtype=np.float32), np.arange(LENGTH, dtype=np.float32) % 7])
    for kind, which, start, length, value in specs * times:
        part = x[which, start : start + length]
        match kind:
            case "launch":
                part *= np.float32(value)
                part += np.arange(length, dtype=np.float32)
            case "copy":
                part[:] = x[1 - which, :length]
            case "fill" | "upload":
                part[:] = value
    return x


def bound(program, queue, buffers, spec):
    kind, which, start, length, value = spec
    memories = [Memory(4 * LENGTH, queue.context, buffer) for buffer in buffers]

    def located(memory):
        return memory.buffer, 0

    match kind:
        case "launch":
            args = memories[which], np.uint64(4 * start), np.float32(value)
            group = (4, 1) if value > 0 else None
            command = EnqueueKernel(queue, cl.Kernel(program, "update"), (4, length // 4), group, args, (0,))
        case "copy":
            command = EnqueueCopy(queue, memories[which], 4 * start, memories[1 - which], 0, 4 * length)
        case "fill":
            command = EnqueueFill(queue, memories[which], 4 * start, 4 * length, np.float32(value))
        case "upload":
            command = EnqueueUpload(queue, memories[which], 4 * start, np.full(length, value, np.float32))
    return command.bind(located)


specs = st.tuples(
    st.sampled_from(["launch", "launch", "copy", "fill", "upload"]),
    st.integers(0, 1),
    st.integers(0, 8).map(lambda n: 4 * n),
    st.integers(1, 8).map(lambda n: 4 * n),
    st.integers(-1, 2),
)


@given(st.lists(specs, min_size=1, max_size=20), st.integers(1, 5), st.integers(1, 3), st.integers(1, 6))
def test_batches_do_what_commands_do_one_by_one(program, specs, least, often, times):
    context, flags = runtime_context(), cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(context.cl_context, flags, hostbuf=row) for row in expected([], 0)]
    listed = CommandList(bound(program, context.queue, buffers, spec) for spec in specs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "options", ContextOptions(batch_thresholds=BatchThresholds(often, least)))
        for _ in range(times):
            listed.enqueue()
    np.testing.assert_array_equal(read(context.queue, buffers), expected(specs, times))


SPECS = [("launch", 0, 0, 8, 2), ("copy", 1, 4, 8, 0), ("fill", 0, 8, 4, 3), ("launch", 1, 8, 8, 1)]


def test_contexts_differ_in_when_lists_become_batches():
    contexts = runtime_context(), Context(runtime_context().spec)
    flags, listed = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, []
    found = []
    for context in contexts:
        buffers = [cl.Buffer(context.cl_context, flags, hostbuf=row) for row in expected([], 0)]
        its_program = cl.Program(context.cl_context, UPDATE).build()
        listed.append(CommandList(bound(its_program, context.queue, buffers, spec) for spec in SPECS * 2))
        found.append(buffers)
    batched = []
    for _ in range(4):
        for one in listed:
            one.enqueue()
        batched.append([one._run_batch is not None for one in listed])
    assert batched == [[True, False]] * 3 + [[True, True]]
    for context, buffers in zip(contexts, found):
        np.testing.assert_array_equal(read(context.queue, buffers), expected(SPECS * 2, 4))


def never(*args, **kwargs):
    raise AssertionError("Python enqueued a command")


@pytest.fixture(params=["run", "run_with_gil"])
def way(request, monkeypatch):
    """Run a test with batches that release the GIL, and with batches that are so short that they keep the GIL."""
    least = 1 if request.param == "run" else 100
    options = ContextOptions(batch_thresholds=BatchThresholds(times=1, calls=least))
    monkeypatch.setattr(runtime_context(), "options", options)
    return request.param


def test_one_call_enqueues_a_batch(program, arrays, way, monkeypatch):
    queue, buffers = arrays
    listed = CommandList(bound(program, queue, buffers, spec) for spec in SPECS)
    listed.enqueue()  # makes the batch
    assert listed._run_batch == getattr(listed.batch, way)
    for kind in (EnqueueKernel, EnqueueCopy, EnqueueFill):
        monkeypatch.setattr(kind, "enqueue", never)
    listed.enqueue()
    np.testing.assert_array_equal(read(queue, buffers), expected(SPECS, 2))


def test_what_the_library_refuses_is_enqueued_by_pyopencl_and_the_rest_follows(program, arrays, way):
    queue, buffers = arrays
    listed = CommandList(bound(program, queue, buffers, spec) for spec in SPECS)
    # These launches fail: four items cannot be divided into groups of three.
    for wrong in (listed[0], listed[3]):
        wrong.call = driver_calls().launch(queue, wrong.kernel, wrong.global_size, (3, 1))
    for _ in range(2):
        listed.enqueue()
    np.testing.assert_array_equal(read(queue, buffers), expected(SPECS, 2))


def test_an_error_is_that_of_pyopencl_and_what_follows_is_not_enqueued(program, arrays, way):
    queue, buffers = arrays
    listed = CommandList(bound(program, queue, buffers, spec) for spec in SPECS)
    listed.enqueue()
    before = expected(SPECS, 1)
    np.testing.assert_array_equal(read(queue, buffers), before)
    wrong = bound(program, queue, buffers, SPECS[1])
    wrong.nbytes = 1 << 20
    listed = CommandList([listed[0], wrong.prepare(), listed[3]])
    with pytest.raises(cl.Error):
        listed.enqueue()
    listed._run_batch = getattr(listed.batch, way)
    with pytest.raises(cl.Error):
        listed.enqueue()
    before[0, :8] = 2 * (2 * before[0, :8] + np.arange(8)) + np.arange(8)
    np.testing.assert_array_equal(read(queue, buffers), before)


def test_python_copies_within_a_batch_where_buffers_change(program, arrays, monkeypatch):
    queue, buffers = arrays
    listed = CommandList(bound(program, queue, buffers, spec) for spec in SPECS)
    copied = listed[1]
    copied.is_rebindable = True
    listed.enqueue()
    assert listed._run_batch and listed.needs_python and listed.batch.calls == len(SPECS) - 1
    other = np.full(LENGTH, 5, np.float32)
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    copied.rebind(1, cl.Buffer(runtime_context().cl_context, flags, hostbuf=other))
    listed.enqueue()
    values = expected(SPECS, 1)
    values[0, :8] = 2 * values[0, :8] + np.arange(8)
    values[1, 4:12] = 5
    values[0, 8:12] = 3
    values[1, 8:16] += np.arange(8)
    np.testing.assert_array_equal(read(queue, buffers), values)


def test_only_a_batch_of_enqueue_calls_may_keep_the_gil(program, arrays):
    queue, buffers = arrays
    listed = CommandList(bound(program, queue, buffers, spec) for spec in SPECS)
    wait = PreparedCall(icd_loader().clWaitForEvents, ctypes.c_uint(0), None)
    assert listed.batch.only_enqueues
    assert not Batch([*listed.batch._kept, wait], [never] * 5).only_enqueues
    assert not Batch([*listed.batch._kept, None], [never] * 5).only_enqueues


def test_a_batch_does_without_the_lock_of_python():
    events = [cl.UserEvent(runtime_context().cl_context) for _ in range(5)]
    handles = [(ctypes.c_void_p * 1)(event.int_ptr) for event in events]
    waits = [PreparedCall(icd_loader().clWaitForEvents, ctypes.c_uint(1), handle) for handle in handles]
    batch, done = Batch(waits, [never] * len(waits)), []

    def end_waits():
        for event in events:
            done.append(event)
            event.set_status(cl.command_execution_status.COMPLETE)

    # The batch waits for another thread (the timer), so it would wait forever if it held the GIL.
    timer = threading.Timer(0.05, end_waits)
    timer.start()
    batch.run()
    assert len(done) == 5
    timer.join()


def test_each_function_is_called_by_its_prototype(program, arrays):
    queue, (x, y) = arrays
    calls, loop, loader = driver_calls(), driver_batches.loop_library(), icd_loader()
    values, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    kernel = cl.Kernel(program, "update")
    kernel.set_args(y, np.uint64(16), np.float32(2))
    event, missing, seconds = (ctypes.c_void_p * 1)(), (ctypes.c_int32 * 1)(1), (ctypes.c_double * 1)()
    read = calls.fetch(queue, y, 16, out, ctypes.addressof(event))
    prepared = [
        calls.write(queue, x, 8, values),
        calls.fill(queue, x, 8, 4, np.float32(7)),
        calls.copy(queue, y, 16, x, 8, 32),
        calls.launch(queue, kernel, (4, 1), (2, 1)),
        PreparedCall(loader.clEnqueueBarrierWithWaitList, *read.args[:1], ctypes.c_uint(0), None, None),
        read,
        PreparedCall(loader.clFlush, *read.args[:1]),
        PreparedCall(loader.clWaitForEvents, ctypes.c_uint(1), event),
        PreparedCall(loop.optdb_agree, missing, ctypes.c_uint64(10**6)),
        PreparedCall(loop.optdb_note_time, seconds),
    ]
    # All functions are called except for `optdb_all_reduce`, which uses several devices.
    assert {call.func.__name__ for call in prepared} == {*driver_batches._FUNCTIONS} - {"optdb_all_reduce"}
    begin = time.clock_gettime(time.CLOCK_MONOTONIC)
    Batch(prepared, [never] * len(prepared)).run()
    np.testing.assert_array_equal(out, [14, 1 * 2 + 1, 2 * 2 + 2, 3 * 2 + 3, 4, 5, 6, 7])
    assert missing[0] == 0 and begin <= seconds[0] <= time.clock_gettime(time.CLOCK_MONOTONIC)
    cl.Event.from_int_ptr(event[0], retain=False)  # release it


def test_the_compiler_has_nothing_to_warn_of(tmp_path):
    flags = "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"
    command = [*shlex.split(os.environ.get("CC") or "cc"), *flags, "-c", driver_batches._SOURCE]
    done = subprocess.run([*command, "-o", tmp_path / "loop.o"], capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_without_a_compiler_python_enqueues(program, arrays, monkeypatch, tmp_path, caplog):
    queue, buffers = arrays
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(driver_batches, "_path", lambda: tmp_path / "loop.so")
    uncached = functools.cache(driver_batches.loop_library.__wrapped__)
    for module in (driver_batches, commands):
        monkeypatch.setattr(module, "loop_library", uncached)
    caplog.set_level(logging.INFO, logger=driver_batches.__name__)
    assert not driver_batches.loop_library()
    assert "no-such-compiler" in caplog.text
    listed = CommandList(bound(program, queue, buffers, spec) for spec in SPECS)
    for _ in range(2):
        listed.enqueue()
    assert not listed._run_batch
    listed.batch.run()
    np.testing.assert_array_equal(read(queue, buffers), expected(SPECS, 3))


@pytest.fixture
def loading(monkeypatch, tmp_path):
    """Load the loop from a separate path; link it with the usual linker, which writes the same bytes each time."""
    monkeypatch.delenv("COMPILER_PATH", raising=False)
    monkeypatch.setattr(driver_batches, "_path", lambda: tmp_path / "loops" / "loop.so")
    monkeypatch.setattr(driver_batches, "loop_library", functools.cache(driver_batches.loop_library.__wrapped__))


@pytest.mark.parametrize("kept", [0.0, 0.5], ids=["empty", "half"])
def test_a_loop_without_its_end_is_compiled_again(loading, kept):
    path = driver_batches._path()
    assert driver_batches.loop_library()
    content = path.read_bytes()
    path.unlink()  # do not overwrite the old file, because this process has mapped it
    path.write_bytes(content[: int(kept * len(content))])
    driver_batches.loop_library.cache_clear()
    assert driver_batches.loop_library()
    assert path.read_bytes() == content


def test_a_loop_that_cannot_be_kept_is_used(loading, caplog, monkeypatch):
    monkeypatch.setattr(user_cache, "_warned", set())
    driver_batches._path().parent.touch()  # a file where the folder should be
    assert driver_batches.loop_library()
    (message,) = caplog.messages
    assert "the compiled loop cannot be saved in" in message
    assert "export XDG_CACHE_HOME=FOLDER" in message


def test_the_loop_is_compiled_once_and_kept(tmp_path):
    code = """
        from optdb import trace_log
        from optdb.runtime import commands, driver_batches
        with trace_log.compiler_runs() as runs:
            print(driver_batches.loop_library() is not None, len(runs))
    """
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    assert [output(code, env=env) for _ in range(2)] == ["True 1", "True 0"]
    assert len(list(tmp_path.rglob("*.so"))) == 1


def test_records_of_many_calls_are_those_of_each():
    loader = icd_loader()
    group = (ctypes.c_size_t * 2)(3, 4)
    calls = [
        PreparedCall(loader.clFlush, ctypes.c_void_p(2**63 + 1), ctypes.c_uint(7), None, group),
        PreparedCall(loader.clFlush),
        PreparedCall(loader.clEnqueueCopyBuffer, *[ctypes.c_size_t(number) for number in range(9)]),
    ]
    records = driver_batches.call_records([*calls, None])
    flush, copy = (driver_batches._FUNCTIONS.index(call.func.__name__) for call in calls[1:])
    assert [record.kind for record in records] == [flush, flush, copy, len(driver_batches._FUNCTIONS)]
    assert list(records[0].words) == [2**63 + 1, 7, 0, ctypes.addressof(group), *[0] * 5]
    assert list(records[1].words) == list(records[3].words) == [0] * 9
    assert list(records[2].words) == list(range(9))
    parts = [Batch(calls, [never] * 3), Batch([], []), Batch([None], [never])]
    assert bytes(Batch.joined(parts).records) == bytes(records)

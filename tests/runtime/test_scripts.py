"""Scripts make, in C, calls that Python would otherwise make between a device's last and next commands."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from optdb.runtime import driver_batches, scripts
from optdb.runtime.commands import CommandList, EnqueueFill, Memory
from optdb.runtime.library import cl
from optdb.runtime.scripts import Arrival, Immediate, NativeAgreement, Script, can_script
from tests.opencl_device import runtime_context

pytestmark = pytest.mark.skipif(not driver_batches.loop_library(), reason="there is no C compiler")

LENGTH = 16


@pytest.fixture
def queue():
    queue = runtime_context().queue
    if not can_script():
        pytest.skip("the library takes no prepared calls")
    return queue


def buffer(queue, value=0):
    made = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * LENGTH)
    cl.enqueue_fill_buffer(queue, made, np.float32(value), 0, 4 * LENGTH)
    return made


def fills(queue, target, *values):
    memory = Memory(4 * LENGTH, queue.context, target)
    commands = [EnqueueFill(queue, memory, 4 * i, 4, np.float32(value)) for i, value in enumerate(values)]
    return CommandList(command.bind(lambda memory: (memory.buffer, 0)) for command in commands)


def read(queue, source):
    found = np.empty(LENGTH, np.float32)
    cl.enqueue_copy(queue, found, source)
    return found


@pytest.mark.parametrize("kind", [Immediate, Script])
def test_what_is_given_comes_in_its_order(queue, kind):
    side = cl.CommandQueue(queue.context, queue.device)
    target, values = buffer(queue), np.arange(LENGTH, dtype=np.float32)
    ready = cl.UserEvent(queue.context)
    # The timer's thread sets the event while the calls wait for it. The calls release the GIL while they wait, because
    # otherwise that thread could never set the event.
    timer = threading.Timer(0.1, ready.set_status, [cl.command_execution_status.COMPLETE])
    timer.start()
    calls = kind()
    begun = calls.note_time()
    calls.wait([ready])
    waited = calls.note_time()
    copy = calls.upload(side, target, 0, values, [cl.enqueue_marker(queue)])
    calls.flush(side)
    calls.delay(queue, [ready, copy])
    calls.delay(queue, [])
    calls.enqueue(fills(queue, target, 7, 8))
    calls.flush(queue)
    if kind is Script:
        assert copy.event is None
        calls.run()
    timer.join()
    Arrival([None, copy]).wait()
    np.testing.assert_array_equal(read(queue, target), [7, 8, *range(2, LENGTH)])
    assert waited.value - begun.value > 0.05


def test_scripts_download(queue):
    target, out = buffer(queue, 3), np.zeros(LENGTH, np.float32)
    script = Script()
    result = script.download(queue, target, 4, out[1:])
    script.enqueue(fills(queue, target, 7, 8))
    assert result.event is None
    script.run()
    Arrival([result]).wait()
    np.testing.assert_array_equal(out, [0, *[3] * (LENGTH - 1)])


def test_any_thread_waits_for_a_copy_that_has_not_begun(queue):
    script, target = Script(), buffer(queue)
    copy = script.upload(queue, target, 0, np.full(LENGTH, 3, np.float32), [])
    found = []
    thread = threading.Thread(target=lambda: (copy.wait(), found.append(copy.event)))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    script.run()
    thread.join(20)
    assert found == [copy.event] and found[0] is not None
    np.testing.assert_array_equal(read(queue, target), np.full(LENGTH, 3))


def test_pyopencl_makes_what_the_library_refuses(queue, monkeypatch):
    target, out = buffer(queue), np.zeros(LENGTH, np.float32)
    commands = fills(queue, target, 5, 6)
    commands[1].call = None
    assert commands.needs_python
    commands = fills(queue, target, 5, 6)
    # Make a call that the library rejects: the pattern of a fill has three bytes.
    commands.batch.records[0].words[3] = 3
    script = Script()
    script.enqueue(commands)
    monkeypatch.setattr(scripts, "_handle", lambda value: scripts.ctypes.c_void_p())
    copy = script.upload(queue, target, 8, np.full(2, 9, np.float32), [])
    result = script.download(queue, target, 0, out)
    script.delay(queue, [copy])
    script.flush(queue)
    script.run()
    result.wait()
    np.testing.assert_array_equal(out[:5], [5, 6, 9, 9, 0])


def test_pyopencl_delays_a_queue_by_a_copy_of_the_library(queue, monkeypatch):
    side = cl.CommandQueue(queue.context, queue.device)
    target, values = buffer(queue), np.arange(LENGTH, dtype=np.float32)
    script = Script()
    copy = script.upload(side, target, 0, values, [])
    script.flush(side)  # without this, the upload may never complete for another queue
    monkeypatch.setattr(scripts, "_handle", lambda value: scripts.ctypes.c_void_p())
    script.delay(queue, [copy])
    script.run()
    np.testing.assert_array_equal(read(queue, target), values)


def test_after_an_error_nothing_follows_and_nobody_waits(queue):
    target = buffer(queue)
    other = NativeAgreement(2)
    other.give_up()
    script = Script()
    script.enqueue(fills(queue, target, 1))
    script.agree(other, 20, lambda: (_ for _ in ()).throw(ArithmeticError("somebody has given up")))
    copy = script.upload(queue, target, 0, np.full(LENGTH, 9, np.float32), [])
    with pytest.raises(ArithmeticError, match="given up"):
        script.run()
    copy.wait()
    assert copy.event is None
    np.testing.assert_array_equal(read(queue, target)[:2], [1, 0])


def test_scripts_and_threads_agree():
    agreement = NativeAgreement(3)

    def work(rank):
        if rank:
            return agreement.agree(20)
        script = Script()
        script.agree(agreement, 20, lambda: pytest.fail("it was not reached"))
        script.run()
        return True

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(work, range(3))) == [True] * 3
    assert agreement.is_reached and not agreement.give_up()

"""Bound commands call the driver without events; PyOpenCL repeats calls that fail, and raises its own errors."""

from dataclasses import replace

import numpy as np
import pytest

from optdb.runtime import commands, driver_batches
from optdb.runtime.buffer_assignment import BufferAssignment, IOBinding, Liveness
from optdb.runtime.commands import EnqueueCopy, EnqueueFill, EnqueueKernel, Memory
from optdb.runtime.library import cl
from tests.opencl_device import runtime_context

SCALE = """
__kernel void scale(__global float *x, ulong x_off, float by) {
    x = (__global float *)((__global char *)x + x_off);
    x[get_global_id(0) + 8 * get_global_id(1)] *= by;
}
"""


def ready(values):
    """Return the runtime's queue, and a buffer with some values."""
    context = runtime_context()
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    return context.queue, cl.Buffer(context.cl_context, flags, hostbuf=values)


def read(queue, buffer, like):
    out = np.empty_like(like)
    cl.enqueue_copy(queue, out, buffer)
    return out


def located(memory):
    return memory.buffer, 4 * (memory.nbytes < 64)


def memory_of(buffer, nbytes=64):
    return Memory(nbytes, buffer.context, buffer)


def launch(queue, buffer, items=(8, 2), group=(4, 1), by=3.0):
    kernel = cl.Kernel(cl.Program(queue.context, SCALE).build(), "scale")
    return EnqueueKernel(queue, kernel, items, group, (memory_of(buffer), np.uint64(0), np.float32(by)), (0,))


def never(*args, **kwargs):
    raise AssertionError("PyOpenCL was asked")


@pytest.fixture
def without_pyopencl(monkeypatch):
    """Prevent PyOpenCL from enqueueing anything after the trial of the device."""
    runtime_context()
    monkeypatch.setattr(commands, "_launch", never)
    for name in ("enqueue_copy", "enqueue_fill_buffer"):
        monkeypatch.setattr(cl, name, never)
    yield monkeypatch.undo


@pytest.mark.parametrize("group", [None, (4, 1)])
def test_a_bound_launch_needs_no_pyopencl(group, without_pyopencl):
    x = np.arange(16, dtype=np.float32)
    queue, buffer = ready(x)
    bound = launch(queue, buffer, group=group).bind(located)
    bound.enqueue()
    bound.enqueue()
    without_pyopencl()
    np.testing.assert_array_equal(read(queue, buffer, x), 9 * x)


def test_a_bound_launch_takes_arguments_that_are_set_again():
    x = np.arange(16, dtype=np.float32)
    queue, buffer = ready(x)
    _, other = ready(x)
    bound = launch(queue, buffer).bind(located)
    bound.rebind(0, other)
    assert bound.call is not None
    bound.enqueue()
    np.testing.assert_array_equal(read(queue, buffer, x), x)
    np.testing.assert_array_equal(read(queue, other, x), 3 * x)


def test_a_bound_copy_needs_no_pyopencl(without_pyopencl):
    x, y = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    (queue, source), (_, target) = ready(x), ready(y)
    EnqueueCopy(queue, memory_of(target), 8, memory_of(source), 16, 12).bind(located).enqueue()
    without_pyopencl()
    y[2:5] = x[4:7]
    np.testing.assert_array_equal(read(queue, target, y), y)


@pytest.mark.parametrize(
    "pattern", [np.int8(-3), np.float16(2), np.float32(0.1), np.float64(0.1), np.complex128(1 + 2j)]
)
def test_a_bound_fill_needs_no_pyopencl(pattern, without_pyopencl):
    x = np.zeros(8, pattern.dtype)
    queue, buffer = ready(x)
    EnqueueFill(queue, memory_of(buffer, x.nbytes + 64), 2 * x.itemsize, 4 * x.itemsize, pattern).bind(
        located
    ).enqueue()
    without_pyopencl()
    x[2:6] = pattern
    np.testing.assert_array_equal(read(queue, buffer, x), x)


def test_no_copy_of_a_command_has_its_call():
    x = np.zeros(16, np.float32)
    queue, buffer = ready(x)
    for command in (
        launch(queue, buffer),
        EnqueueCopy(queue, memory_of(buffer), 0, memory_of(buffer), 32, 32),
        EnqueueFill(queue, memory_of(buffer), 0, 64, np.float32(0)),
    ):
        bound = command.bind(located)
        assert command.call is None and bound.call is not None
        assert replace(bound).call is None


def test_a_transfer_between_other_buffers_goes_through_pyopencl():
    x = np.arange(16, dtype=np.float32)
    (queue, first), (_, second), (_, target) = ready(x), ready(x + 1), ready(np.zeros_like(x))
    external = Memory(64, queue.context)
    buffers = BufferAssignment(Liveness({}), io=IOBinding(inputs={"x": external}))
    bound = buffers.bind(EnqueueCopy(queue, memory_of(target), 0, external, 0, 64))
    for source, expected in ((first, x), (second, x + 1)):
        buffers.rebind(external, source)
        bound.enqueue()
        np.testing.assert_array_equal(read(queue, target, x), expected)


@pytest.mark.parametrize(
    "command",
    [
        lambda queue, buffer: launch(queue, buffer, items=(7, 1), group=(4, 1)),
        lambda queue, buffer: EnqueueCopy(queue, memory_of(buffer), 32, memory_of(buffer), 0, 64),
        lambda queue, buffer: EnqueueFill(queue, memory_of(buffer), 32, 64, np.float32(1)),
    ],
    ids=["launch", "copy", "fill"],
)
def test_a_call_that_fails_raises_the_error_of_pyopencl(command):
    x = np.zeros(16, np.float32)
    queue, buffer = ready(x)
    bound = command(queue, buffer).bind(located)
    with pytest.raises(cl.Error) as expected:
        bound.enqueue_on(queue)
    with pytest.raises(cl.Error) as raised:
        bound.enqueue()
    assert type(raised.value) is type(expected.value) and str(raised.value) == str(expected.value)


def test_a_status_lets_pyopencl_try_again():
    """If a driver runs out of memory, PyOpenCL frees memory and tries again."""
    x = np.arange(16, dtype=np.float32)
    queue, buffer = ready(x)
    bound = launch(queue, buffer).bind(located)
    bound.call = lambda: -4
    bound.enqueue()
    np.testing.assert_array_equal(read(queue, buffer, x), 3 * x)


class Missing(driver_batches.DriverCalls):
    """A fake library whose functions raise when they are called."""

    def __init__(self):
        raise AttributeError("clEnqueueFillBuffer")


def test_a_library_that_cannot_be_called_is_left_to_pyopencl(monkeypatch):
    monkeypatch.setattr(driver_batches, "DriverCalls", Missing)
    monkeypatch.setattr(commands, "driver_calls", driver_batches.driver_calls.__wrapped__)
    x = np.arange(16, dtype=np.float32)
    queue, buffer = ready(x)
    bound = launch(queue, buffer).bind(located)
    assert bound.call is None
    bound.enqueue()
    np.testing.assert_array_equal(read(queue, buffer, x), 3 * x)

"""Arrays are copied to a device through pinned memory if that is faster; the caller can then change them at once."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from optdb.runtime import pinned_memory
from optdb.runtime.arrays import from_host, to_host
from optdb.runtime.context import Context
from optdb.runtime.context_options import TransferSizes
from optdb.runtime.dispatch import HeldCommands, listened
from optdb.runtime.library import cl
from optdb.runtime.packing import StagingBuffer
from optdb.runtime.pinned_memory import PinnedMemory
from tests.opencl_device import runtime_context

RNG = np.random.RandomState(7)


@pytest.fixture
def context():
    """Return a new context with pinned memory."""
    context = Context(runtime_context().spec)
    context.kept[pinned_memory.__name__] = PinnedMemory(context.queue)
    return context


def blocks(context):
    return context.kept[pinned_memory.__name__]._blocks


def by_driver(array):
    """Return a device array's values, copied by the driver, without pinned memory."""
    values = np.empty(array.shape, array.dtype)
    cl.enqueue_copy(array.queue, values, array.base_data, src_offset=array.offset)
    return values


def keep_busy(context):
    """Block the queue until the returned event is complete."""
    gate = cl.UserEvent(context.cl_context)
    cl.enqueue_barrier(context.queue, wait_for=[gate])
    return gate


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32", "int64", "complex128"])
@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x.T, lambda x: x[::-1, ::2]], ids=["C", "F", "strided"])
def test_values_arrive(context, dtype, layout):
    value = layout((RNG.rand(300, 200) * 9).astype(dtype))
    np.testing.assert_array_equal(by_driver(from_host(context, value)), value)
    assert len(blocks(context)) == 1


@pytest.mark.parametrize("shape", [(1 << 20,), (3, 1 << 18), (1 << 18, 3), (1, 1, 700_001)])
def test_threads_copy_large_arrays(context, monkeypatch, shape):
    copied, copyto = [], np.copyto

    def counting(target, source):
        copied.append(source.size)
        copyto(target, source)

    monkeypatch.setattr(context.kept[pinned_memory.__name__], "_copiers", pinned_memory._Copiers(3))
    monkeypatch.setattr(pinned_memory, "_NBYTES_PER_THREAD", 1 << 18)
    monkeypatch.setattr(np, "copyto", counting)
    value = RNG.rand(*shape).astype("float32")
    for values in (value, value.T if value.ndim == 2 else value[..., ::-1]):
        copied.clear()
        np.testing.assert_array_equal(by_driver(from_host(context, values)), values)
        assert len(copied) == 3 and sum(copied) == value.size


@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x.T, lambda x: x[::-1, ::2]], ids=["C", "F", "strided"])
@pytest.mark.parametrize("shape", [(40_000, 3), (3, 40_000), (1, 120_000), (301, 400)])
def test_large_arrays_are_copied_in_pieces(context, shape, layout):
    context.kept[pinned_memory.__name__] = PinnedMemory(context.queue, 1 << 15)
    values, events = layout(RNG.rand(*shape)), []
    target = from_host(context, values, events=events)
    used = [block.memory.nbytes for block in blocks(context)]
    assert set(used) == {1 << 15} and len(events) == 1
    np.testing.assert_array_equal(by_driver(target), values)
    # The returned event is complete when the last piece has been copied.
    assert events[0].command_execution_status == cl.command_execution_status.COMPLETE


def test_pieces_wait_for_blocks_and_may_be_changed(context, monkeypatch):
    context.kept[pinned_memory.__name__] = PinnedMemory(context.queue, 1 << 15)
    monkeypatch.setattr(pinned_memory, "_MAX_NBYTES", 1 << 17)
    gate, values = keep_busy(context), np.arange(40_000.0)
    threading.Timer(0.2, gate.set_status, [cl.command_execution_status.COMPLETE]).start()
    array = from_host(context, values, events=[])
    assert len(blocks(context)) == 4 and gate.command_execution_status == cl.command_execution_status.COMPLETE
    values[:] = 0
    np.testing.assert_array_equal(by_driver(array), np.arange(40_000.0))


def test_large_blocking_copies_use_pinned_memory_if_several_threads_copy(context, monkeypatch):
    pinned = PinnedMemory(context.queue, 1 << 16, is_quicker=False)
    context.kept[pinned_memory.__name__] = pinned
    for threads, nbytes, expected in ((1, 1 << 17, False), (2, 1 << 15, False), (2, 1 << 16, True)):
        monkeypatch.setattr(pinned, "_copiers", pinned_memory._Copiers(threads))
        values = RNG.rand(nbytes // 8)
        array = from_host(context, values)
        assert bool(blocks(context)) is expected
        blocks(context).clear()
        np.testing.assert_array_equal(to_host(array), values)
        assert bool(blocks(context)) is expected


@pytest.mark.parametrize("with_events", [False, True])
def test_arrays_may_be_changed_while_the_device_is_busy(context, with_events):
    gate = keep_busy(context)
    value, arrays, expected, events = RNG.rand(100, 100).astype("float32"), [], [], []
    for _ in range(4):
        expected.append(value.copy())
        arrays.append(from_host(context, value, events=events if with_events else None))
        value += 1
    assert len(blocks(context)) == 4 and len(events) == 4 * with_events
    gate.set_status(cl.command_execution_status.COMPLETE)
    for array, wanted in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(by_driver(array), wanted)


def test_blocks_are_used_again(context):
    for number in range(5):
        for size in (5000, 70_000):
            value = RNG.rand(size).astype("float32") + number
            np.testing.assert_array_equal(by_driver(from_host(context, value)), value)
    assert len(blocks(context)) == 2


def test_memory_is_bounded(context, monkeypatch):
    monkeypatch.setattr(pinned_memory, "_MAX_NBYTES", 1 << 17)
    gate = keep_busy(context)
    first = from_host(context, np.ones(1 << 14, "float32"))
    assert (
        context.kept[pinned_memory.__name__].upload(context.queue, first.base_data, 0, np.ones(1 << 17, "i1")) is None
    )
    gate.set_status(cl.command_execution_status.COMPLETE)
    context.queue.finish()
    for size in (1 << 14, 1 << 15, 1 << 14, 1 << 16):  # an array of the last size exceeds the limit
        value = RNG.rand(size).astype("float32")
        np.testing.assert_array_equal(by_driver(from_host(context, value)), value)
    assert sum(block.memory.nbytes for block in blocks(context)) <= 1 << 17


def test_arrays_that_take_much_of_the_memory_are_not_staged(context, monkeypatch):
    context.kept[pinned_memory.__name__] = PinnedMemory(context.queue, 1 << 15)
    values, target = RNG.rand(10_000), from_host(context, np.zeros(10_000))
    staged = StagingBuffer(context).begin(values)
    staged.move_to(target)
    np.testing.assert_array_equal(by_driver(target), values)
    profile = context.profile
    for memory, expected in ((values.nbytes * 16, True), (values.nbytes * 15, False)):
        monkeypatch.setattr(context, "profile", replace(profile, global_memory_bytes=memory))
        assert (StagingBuffer(context).begin(values) is not None) is expected


def test_small_and_constant_arrays_go_by_themselves(context):
    np.testing.assert_array_equal(by_driver(from_host(context, np.ones(10))), np.ones(10))
    from_host(context, np.ones(10_000), constant=True)
    assert not blocks(context)


def test_commands_that_are_held_back_keep_their_values(context):
    value, held = np.arange(10_000.0), HeldCommands()
    with listened(held):
        array = from_host(context, value)
        value[:] = 0
    held.enqueue()
    np.testing.assert_array_equal(by_driver(array), np.arange(10_000.0))
    assert not blocks(context)


@pytest.mark.parametrize(("slower", "expected"), [("driver", True), ("pinned", False)])
def test_a_trial_decides(context, slower, expected, monkeypatch):
    """A trial measures pinned memory first, then the driver, and chooses the faster one."""
    times = iter([1.0, 2.0] if slower == "driver" else [2.0, 1.0])
    monkeypatch.setattr(pinned_memory, "_seconds", lambda copy: (copy(), next(times))[1])
    monkeypatch.setattr(context, "profile", replace(context.profile, shares_host_memory=False))
    del context.kept[pinned_memory.__name__]
    assert pinned_memory.pinned_memory(context).is_quicker is expected
    value, events = RNG.rand(10_000), []
    np.testing.assert_array_equal(by_driver(from_host(context, value)), value)
    assert len(blocks(context)) == 1
    before = blocks(context)[0].event
    np.testing.assert_array_equal(by_driver(from_host(context, value)), value)
    assert (blocks(context)[0].event is not before) is expected
    np.testing.assert_array_equal(by_driver(from_host(context, value, events=events)), value)
    assert len(events) == 1 and blocks(context)[0].event is events[0]


def test_the_host_waits_before_it_is_further_ahead(context):
    gate, events = keep_busy(context), []
    values = [np.full(10_000, number, "float32") for number in range(9)]
    arrays = []

    def send():
        arrays.extend(from_host(context, value, events=events) for value in values)

    sender = threading.Thread(target=send)
    sender.start()
    until = time.monotonic() + 60
    while len(events) < 4 and time.monotonic() < until:
        time.sleep(0.001)
    sender.join(0.05)
    assert len(events) == 4 and sender.is_alive()
    gate.set_status(cl.command_execution_status.COMPLETE)
    sender.join(60)
    assert len(blocks(context)) == 4
    for array, value in zip(arrays, values, strict=True):
        np.testing.assert_array_equal(by_driver(array), value)


def test_a_trial_with_other_values_decides_against_it(context, monkeypatch):
    times = iter([1.0, 2.0])
    monkeypatch.setattr(pinned_memory, "_seconds", lambda copy: (copy(), next(times))[1])
    upload = PinnedMemory.upload
    monkeypatch.setattr(PinnedMemory, "upload", lambda self, *args: upload(self, *args[:3], args[3] + 1))
    monkeypatch.setattr(context, "profile", replace(context.profile, shares_host_memory=False))
    del context.kept[pinned_memory.__name__]
    assert pinned_memory.pinned_memory(context) is None


def test_a_device_with_the_hosts_memory_has_none():
    context = Context(runtime_context().spec)
    if context.profile.shares_host_memory:
        assert pinned_memory.pinned_memory(context) is None


def test_a_driver_without_pinned_memory_has_none(context, monkeypatch):
    def fail(*args):
        raise cl.MemoryError("none")

    monkeypatch.setattr(PinnedMemory, "upload", fail)
    monkeypatch.setattr(context, "profile", replace(context.profile, shares_host_memory=False))
    del context.kept[pinned_memory.__name__]
    assert pinned_memory.pinned_memory(context) is None


def downloaded(context, array, **options):
    """Return a device array's values, which must have been copied through pinned memory."""
    before = [block.event for block in blocks(context)]
    values = to_host(array, **options)
    assert [block.event for block in blocks(context)] != before
    return values


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32", "int64", "complex128"])
@pytest.mark.parametrize("shape", [(60_000,), (300, 200), (3, 200, 100), (1, 60_000, 1)])
def test_arrays_are_downloaded_in_pieces(context, dtype, shape):
    context.kept[pinned_memory.__name__] = PinnedMemory(context.queue, 1 << 13)
    context.options = replace(context.options, transfer_sizes=TransferSizes(least=1))
    values = (RNG.rand(*shape) * 9).astype(dtype)
    array, out = from_host(context, values), np.zeros(shape, dtype)
    for part, expected in ((array, values), (array[:1], values[:1]), (array[1:], values[1:])):
        if part.size:
            np.testing.assert_array_equal(downloaded(context, part), expected)
    assert downloaded(context, array, out=out, begun=[]) is out
    np.testing.assert_array_equal(out, values)
    assert {block.memory.nbytes for block in blocks(context)} == {1 << 13}


def test_downloads_wait_for_blocks_of_uploads(context, monkeypatch):
    context.kept[pinned_memory.__name__] = PinnedMemory(context.queue, 1 << 15)
    monkeypatch.setattr(pinned_memory, "_MAX_NBYTES", 1 << 16)
    values = np.arange(40_000.0)
    array, other = from_host(context, values), from_host(context, np.zeros(1000))
    gate = keep_busy(context)
    from_host(context, np.ones(1 << 12), out=other, events=[])
    threading.Timer(0.2, gate.set_status, [cl.command_execution_status.COMPLETE]).start()
    np.testing.assert_array_equal(downloaded(context, array), values)
    assert len(blocks(context)) == 2


def test_a_download_without_memory_for_blocks_is_copied_by_the_driver(context, monkeypatch):
    array = from_host(context, np.arange(40_000.0))
    context.kept[pinned_memory.__name__] = PinnedMemory(context.queue)
    monkeypatch.setattr(pinned_memory, "_MAX_NBYTES", 1 << 10)
    np.testing.assert_array_equal(to_host(array), np.arange(40_000.0))
    assert not blocks(context)


def test_blocks_are_free_after_a_download_fails(context, monkeypatch):
    array = from_host(context, np.arange(40_000.0))
    monkeypatch.setattr(context.kept[pinned_memory.__name__]._copiers, "copy", lambda *args: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        to_host(array)
    context.queue.finish()
    assert all(block.is_free for block in blocks(context))


def test_threads_download_at_once(context):
    context.kept[pinned_memory.__name__] = PinnedMemory(context.queue, 1 << 12)
    expected = [RNG.rand(5_000) for _ in range(6)]
    arrays, found = [from_host(context, values) for values in expected], {}

    def download(number):
        for _ in range(5):
            found[number] = to_host(arrays[number])

    threads = [threading.Thread(target=download, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number, values in enumerate(expected):
        np.testing.assert_array_equal(found[number], values)


def test_uploads_do_not_wait_for_a_download_of_a_busy_device(context):
    context.kept[pinned_memory.__name__] = PinnedMemory(context.queue, 1 << 12)
    values, found = RNG.rand(5_000), []
    array = from_host(context, values)
    gate = keep_busy(context)
    downloading = threading.Thread(target=lambda: found.append(to_host(array)))
    downloading.start()
    until = time.monotonic() + 60
    while not any(block.is_downloading for block in blocks(context)) and time.monotonic() < until:
        time.sleep(0.001)
    other, events = RNG.rand(3_000), []
    target = from_host(context, other, events=events)
    assert downloading.is_alive() and len(events) == 1
    gate.set_status(cl.command_execution_status.COMPLETE)
    downloading.join(60)
    np.testing.assert_array_equal(found, [values])
    np.testing.assert_array_equal(by_driver(target), other)

"""Scratch memory is lent for some launches, and tables are cached."""

import threading

import numpy as np
import pytest

from optdb.codegen.scratch import scratch, tables
from optdb.runtime.arrays import to_host
from optdb.runtime.context import Context
from optdb.runtime.dispatch import HeldCommands, listened
from optdb.runtime.recording import Recorder
from optdb.runtime.timing import Timer


def test_memory_is_lent_again_and_grows():
    context = Context("opencl")
    with scratch(context, "float32", 3, 0, 5) as arrays:
        assert [(array.shape, array.dtype) for array in arrays] == [((n,), np.float32) for n in (3, 0, 5)]
        begins = [array.offset for array in arrays]
        assert begins == sorted(begins) and begins[2] >= 3 * 4
        first = arrays[0].base_data.int_ptr
    with scratch(context, "float64", 8) as (array,):
        assert array.base_data.int_ptr == first
    with scratch(context, "float64", 1 << 20) as (array,):
        assert array.base_data.size >= 8 << 20


def test_memory_is_lent_to_one_thread_at_a_time():
    context, order = Context("opencl"), []

    def other():
        with scratch(context, "float32", 1):
            order.append("other")

    with scratch(context, "float32", 1):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.05)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]


@pytest.mark.parametrize("listener", [HeldCommands, Recorder, Timer])
def test_memory_of_commands_that_go_to_a_listener_is_not_shared(listener):
    """A listener may enqueue its commands later, among commands of other threads, so each scope gets its own memory."""
    context, buffers = Context("opencl"), []
    with scratch(context, "float32", 4) as (shared,):
        buffers.append(shared.base_data)
    for _ in range(2):
        with listened(listener()), scratch(context, "float32", 4) as (array,):
            buffers.append(array.base_data)
    assert len({buffer.int_ptr for buffer in buffers}) == 3
    with scratch(context, "float32", 4) as (array,):
        assert array.base_data is buffers[0]


def test_no_thread_waits_for_one_that_records():
    context, done = Context("opencl"), threading.Event()

    def other():
        with scratch(context, "float32", 1):
            done.set()

    with listened(Recorder()), scratch(context, "float32", 1):
        thread = threading.Thread(target=other)
        thread.start()
        assert done.wait(10)
    thread.join()


def test_tables_are_made_once():
    context, made = Context("opencl"), []

    def make():
        made.append(1)
        return [np.arange(3), [np.ones(2), "text"]]

    for _ in range(2):
        numbers, (ones, text) = tables(context, "key", make)
        assert to_host(numbers).tolist() == [0, 1, 2] and to_host(ones).tolist() == [1, 1] and text == "text"
    assert len(made) == 1

"""Liveness finds when a command list needs each memory block; blocks that are live at the same time do not overlap."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.runtime.buffer_assignment import BufferAssignment, CommandGroup, IOBinding, Liveness, liveness
from optdb.runtime.commands import CommandList, EnqueueCopy, EnqueueFill, EnqueueKernel, EnqueueUpload, Memory
from optdb.runtime.library import cl
from tests.effort import examples
from tests.opencl_device import runtime_context


def memories(count, nbytes=64, context=None):
    return [Memory(nbytes, context) for _ in range(count)]


def copy(target, source):
    return EnqueueCopy(None, target, 0, source, 0, target.nbytes)


def test_what_commands_alone_use_is_live_from_the_first_to_the_last():
    a, b, c = memories(3)
    live = liveness([CommandGroup(CommandList([copy(b, a), copy(c, b), copy(a, c)]))], [])
    assert dict(live.ranges) == {a: (1, 3), b: (1, 2), c: (2, 3)}
    assert live.peak_nbytes == 3 * 64 == live.nbytes_without_reuse


def test_what_a_variable_lies_in_is_live_for_whole_steps():
    a, b, scratch = memories(3)
    first = CommandGroup(CommandList([copy(scratch, a), copy(b, scratch)]), [a, b])
    second = CommandGroup(CommandList([copy(a, b)]), [a, b])
    live = liveness([first, second], [])
    assert live.ranges[a] == live.ranges[b] == (1, 5)
    assert live.ranges[scratch] == (1, 2)


def test_results_and_persistent_values_outlive_the_commands():
    a, b, constant, result = memories(4)
    live = liveness([CommandGroup(CommandList([copy(result, a), copy(b, constant)]))], [result], persistent=[constant])
    assert live.ranges[result][1] == live.ranges[constant][1] > 2
    assert live.ranges[constant][0] == 0
    assert live.ranges[a] == (1, 1) and live.ranges[b] == (2, 2)


def test_what_has_a_buffer_or_is_provided_needs_none():
    a, b, c = memories(3)
    a.buffer = object()
    live = liveness([CommandGroup(CommandList([copy(b, a), copy(c, b)]), [a])], [a, b], provided=[b])
    assert set(live.ranges) == {c}


def test_a_kernel_that_is_told_no_offset_takes_a_buffer_of_its_own():
    a, b = memories(2)
    launch = EnqueueKernel(None, None, (1,), None, (a, b, np.uint64(0)), array_slots=(1,))
    live = liveness([CommandGroup(CommandList([launch]))], [])
    assert live.own_buffer == {a}
    assert live.nbytes(IOBinding()) == 64 + 128  # memories that share a buffer are aligned
    assert live.nbytes(IOBinding(outputs={"y": b})) == 64 + 64


@settings(deadline=None, max_examples=examples(50))
@given(st.data())
def test_values_of_lists_are_those_with_a_buffer_for_each(data):
    """Random lists of bound fills, uploads and copies give the same results as NumPy arrays."""
    context = runtime_context()
    queue, count = context.queue, data.draw(st.integers(1, 6))
    sizes = [data.draw(st.integers(1, 40)) * 4 for _ in range(count)]
    here = [Memory(nbytes, context.cl_context) for nbytes in sizes]
    values = [None] * count
    commands = CommandList()
    for _ in range(data.draw(st.integers(1, 12))):
        target = data.draw(st.integers(0, count - 1))
        full = [i for i in range(count) if values[i] is not None and i != target and sizes[i] >= sizes[target]]
        kind = data.draw(st.sampled_from(["fill", "upload", "copy"] if full else ["fill", "upload"]))
        number = np.int32(data.draw(st.integers(-9, 9)))
        nbytes = sizes[target]
        if kind == "fill":
            commands.append(EnqueueFill(queue, here[target], 0, nbytes, number))
            values[target] = np.full(nbytes // 4, number)
        elif kind == "upload":
            values[target] = np.arange(nbytes // 4, dtype=np.int32) * number
            commands.append(EnqueueUpload(queue, here[target], 0, values[target].copy()))
        else:
            source = data.draw(st.sampled_from(full))
            start = sizes[source] - nbytes
            commands.append(EnqueueCopy(queue, here[target], 0, here[source], start, nbytes))
            values[target] = values[source][start // 4 :].copy()
    written = [i for i in range(count) if values[i] is not None]
    kept = data.draw(st.sets(st.sampled_from(written), min_size=1))
    external = {i: here[i] for i in kept if data.draw(st.booleans())}
    buffers = BufferAssignment(
        liveness([CommandGroup(commands)], [here[i] for i in kept]), io=IOBinding(outputs=external)
    )
    bound = CommandList(map(buffers.bind, commands))
    for _ in range(2):
        for memory in external.values():
            buffers.rebind(memory, cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE, memory.nbytes))
        bound.enqueue()
        for i in kept:
            out = np.empty(sizes[i] // 4, np.int32)
            buffer, offset = buffers.locate(here[i])
            cl.enqueue_copy(queue, out, buffer, src_offset=offset)
            np.testing.assert_array_equal(out, values[i])


def test_only_commands_with_external_operands_can_be_rebound():
    context = runtime_context()
    a, b, c = memories(3, context=context.cl_context)
    buffers = BufferAssignment(Liveness({b: (0, 9), c: (0, 9)}), io=IOBinding(inputs={"x": a}))
    queue = context.queue
    first = buffers.bind(EnqueueCopy(queue, b, 0, a, 0, 64))
    second = buffers.bind(EnqueueCopy(queue, c, 0, b, 0, 64))
    assert first.is_rebindable and not second.is_rebindable
    buffer = cl.Buffer(context.cl_context, cl.mem_flags.READ_WRITE, 64)
    buffers.rebind(a, buffer)
    assert first.source is buffer and second.source is not buffer

"""Several copies in one launch have the same effect as separate copies."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optdb.device.launches import copies
from optdb.device.launches.copies import build_early, calls_until_gathering, gathered
from optdb.runtime.commands import EnqueueCopy, EnqueueKernel
from optdb.runtime.library import cl
from tests.effort import examples
from tests.opencl_device import runtime_context

#: Bytes of each buffer.
SIZE = 3 * copies.PIECE_NBYTES + 40


@pytest.fixture
def context():
    found = runtime_context()
    if not found.profile.quirks.keeps_addresses:
        pytest.skip("the driver may move buffers")
    return found


def ready(context, values):
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    return [cl.Buffer(context.cl_context, flags, hostbuf=value) for value in values]


def filled_buffers(count):
    return [np.random.RandomState(number).randint(0, 256, SIZE).astype(np.uint8) for number in range(count)]


def check(context, values, ranges):
    """Compare copies one by one with merged copies; a range is (target, its offset, source, its offset, bytes)."""
    expected, results = [value.copy() for value in values], []
    for target, start, source, begin, nbytes in ranges:
        expected[target][start : start + nbytes] = expected[source][begin : begin + nbytes].copy()
    buffers = ready(context, values)
    commands = [
        EnqueueCopy(context.queue, buffers[target], start, buffers[source], begin, nbytes)
        for target, start, source, begin, nbytes in ranges
    ]
    launched = gathered(context, commands)
    launched.enqueue()
    for buffer, value in zip(buffers, values, strict=True):
        results.append(np.empty_like(value))
        cl.enqueue_copy(context.queue, results[-1], buffer)
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, wanted)
    return launched


@pytest.mark.parametrize("nbytes", [1, 4, 16, 28, copies.PIECE_NBYTES, copies.PIECE_NBYTES + 12, SIZE])
def test_sizes(context, nbytes):
    (launch,) = check(context, filled_buffers(8), [(number, 0, number + 4, 0, nbytes) for number in range(4)])
    assert isinstance(launch, EnqueueKernel)


@pytest.mark.parametrize("offsets", [(0, 16), (16, 32), (1, 0), (4, 8), (3, 7)])
def test_offsets(context, offsets):
    ranges = [(number, offsets[0], number + 4, offsets[1], 1000) for number in range(4)]
    assert len(check(context, filled_buffers(8), ranges)) == 1


def test_a_chain_is_copied_in_order(context):
    launched = check(context, filled_buffers(6), [(number + 1, 0, number, 0, 64) for number in range(5)])
    assert all(isinstance(command, EnqueueCopy) for command in launched)


def test_what_depends_on_a_copy_begins_another_launch(context):
    first = [(number, 0, 8, 64 * number, 64) for number in range(4)]
    second = [(number + 4, 0, number, 32, 16) for number in range(4)]
    assert len(check(context, filled_buffers(9), first + second)) == 2


def test_a_target_that_is_read_before_begins_another_launch(context):
    first = [(number, 0, number + 4, 0, 64) for number in range(4)]
    second = [(number + 4, 32, 8, 0, 16) for number in range(4)]
    assert len(check(context, filled_buffers(9), first + second)) == 2


def test_large_copies_stay(context):
    nbytes = copies._MAX_NBYTES + 16
    values = [np.zeros(nbytes, np.uint8) for _ in range(8)]
    launched = check(context, values, [(number, 0, number + 4, 0, nbytes) for number in range(4)])
    assert len(launched) == 4


def test_parts_of_a_buffer_are_the_buffer(context):
    """A sub-buffer has its own handle."""
    (whole,) = ready(context, filled_buffers(1))
    align = max(context.profile.base_alignment_bytes, 128)
    (part,) = [whole.get_sub_region(align, align)]
    others = ready(context, filled_buffers(4))
    commands = [EnqueueCopy(context.queue, others[number], 0, whole, 8 * number, 8) for number in range(4)]
    commands += [EnqueueCopy(context.queue, part, 8 * number, others[number], 0, 8) for number in range(4)]
    assert len(gathered(context, commands)) == 2
    commands = [EnqueueCopy(context.queue, others[number], 0, whole, align + 8 * number, 8) for number in range(4)]
    commands.append(EnqueueCopy(context.queue, part, 0, others[3], 64, 8))
    assert [type(command) for command in gathered(context, commands)] == [EnqueueKernel, EnqueueCopy]


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_any_copies(data):
    context = runtime_context()
    if not context.profile.quirks.keeps_addresses:
        return
    numbers, starts = st.integers(0, 3), st.integers(0, 6).map(lambda n: 24 * n)
    ranges = []
    for _ in range(data.draw(st.integers(4, 14))):
        target, source = data.draw(numbers), data.draw(numbers)
        start, begin, nbytes = data.draw(starts), data.draw(starts), data.draw(st.sampled_from([8, 24, 40]))
        if target != source or abs(start - begin) >= nbytes:
            ranges.append((target, start, source, begin, nbytes))
    if ranges:
        check(context, [value[:256] for value in filled_buffers(4)], ranges)


def test_gathering_waits_until_it_has_paid(context, monkeypatch):
    quirks = replace(context.profile.quirks, copy_s=2.0**-20, kernel_compile_s=2.0**-10)
    monkeypatch.setattr(context, "profile", replace(context.profile, quirks=quirks))
    buffers = ready(context, filled_buffers(22))
    commands = [EnqueueCopy(context.queue, buffers[n], 0, buffers[n + 11], 0, 8) for n in range(11)]
    assert calls_until_gathering(context, commands, "auto") == 103
    assert calls_until_gathering(context, commands, "always") == 0
    assert calls_until_gathering(context, commands, "never") == math.inf
    assert calls_until_gathering(context, commands[:3], "always") == math.inf
    for without in ({"copy_s": 0.0}, {"keeps_addresses": False}):
        monkeypatch.setattr(context, "profile", replace(context.profile, quirks=replace(quirks, **without)))
        assert calls_until_gathering(context, commands, "always") == math.inf


def test_built_early_only_where_it_will_be_needed(context, monkeypatch):
    built = []
    monkeypatch.setattr(copies, "build", lambda *args, **kwargs: built.append(args))
    for copy_s, persistent in ((0.0, True), (2.0**-20, False), (2.0**-20, True)):
        assert not built
        quirks = replace(context.profile.quirks, copy_s=copy_s, persistent_launches=persistent)
        monkeypatch.setattr(context, "profile", replace(context.profile, quirks=quirks))
        build_early(context)
    assert len(built) == 1

"""C code adds up the vectors of one process's devices without Python, and errors end its waits."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from optdb.runtime import driver_batches
from optdb.runtime.all_reduce import (
    EnqueueAllReduce,
    EnqueueGive,
    ExchangeRound,
    Member,
    MemberTable,
    Moments,
    VectorSpec,
)
from optdb.runtime.arrays import empty, from_host, to_host
from optdb.runtime.commands import CommandList, Memory
from optdb.runtime.fetching import EnqueueFetch, StartQueue
from tests.opencl_device import new_context, runtime_context

pytestmark = pytest.mark.skipif(not driver_batches.loop_library(), reason="there is no C compiler")

LENGTHS = (6, 9)
SIZE = sum(LENGTHS)


def never(round_):
    raise AssertionError("C code makes the round")


def begun(rank, table, active, attempt=1, is_native=True):
    member = table.member(rank)
    member.begin(attempt, active, is_native)
    return member


def round_of(member, counts=(1, 1), dtype="float64", reduce=never, number=3):
    specs = [
        VectorSpec(np.dtype(dtype), 5, 5),
        VectorSpec(np.dtype(dtype), SIZE, SIZE // 3 * 2, Moments(LENGTHS, tuple(counts))),
    ]
    return ExchangeRound(runtime_context(), number, specs, member, reduce)


def in_threads(work, count):
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(work, range(count)))


def test_commands_bring_vectors_and_results_without_python():
    """Two threads run their command lists several times, each time with a single call of C code."""
    contexts, table, turns = [new_context(), new_context()], MemberTable(2, 20), 4
    # Keep the rounds, because one thread may still read a round's vectors when the other has ended.
    rounds = []

    def work(rank):
        # Each thread has its own context, because each device has its own context.
        context, member = contexts[rank], table.member(rank)
        round_ = ExchangeRound(context, 0, [VectorSpec(np.dtype("float32"), 8, 8)], member, never)
        rounds.append(round_)
        vector, result = from_host(context, np.arange(8, dtype="float32") + rank), empty(context, (8,), "float32")
        source, target = (Memory(32, context.cl_context, array.base_data) for array in (vector, result))
        recorded = [
            EnqueueFetch(context.queue, round_.vectors[0], round_.events[0], source, vector.offset),
            StartQueue(context.queue),
            EnqueueAllReduce(context.queue, round_),
            EnqueueGive(context.queue, round_, 0, target, result.offset),
        ]
        commands = CommandList(command.bind(lambda memory: (memory.buffer, 0)) for command in recorded)
        if not commands.batch.is_native:
            pytest.skip("the library takes no prepared calls")
        for attempt in range(1, turns + 1):
            member.begin(attempt, 2, True)
            commands.batch.run()
        assert member.seconds > 0 and round_.events[0].take() is None
        return to_host(result)

    for found in in_threads(work, 2):
        np.testing.assert_array_equal(found, 2 * np.arange(8) + 1)


class Refused(Exception):
    """Raised if Python would have to finish a reduction round because C code has not finished it."""


def refuse(round_):
    assert round_.is_native
    raise Refused(round_.missing)


def test_an_attempt_that_is_given_up_ends_waits():
    table = MemberTable(2, 20)
    round_ = round_of(begun(0, table, 2, attempt=4), reduce=refuse)
    table.abort(3)
    timer = threading.Timer(0.05, table.abort, [4])
    timer.start()
    with pytest.raises(Refused, match="None"):
        round_.run()
    timer.join()
    with pytest.raises(Refused, match="None"):
        round_.run()


def test_a_device_that_does_not_come_in_time_is_named():
    table = MemberTable(3, 0.05)
    members = [begun(rank, table, 3) for rank in range(3)]
    assert all(isinstance(member, Member) for member in members)
    first, second = (round_of(member, reduce=refuse) for member in members[:2])
    for _ in range(2):  # the second call raises at once
        with pytest.raises(Refused, match="2"):
            in_threads(lambda rank: (first, second)[rank].run(), 2)
    members[2].begin(2, 3, True)
    for member in members[:2]:
        member.begin(2, 3, True)
    third = round_of(members[2])
    in_threads(lambda rank: (first, second, third)[rank].run(), 3)


@pytest.mark.parametrize("how", ["not native", "float16", "no member"])
def test_python_computes_where_c_code_does_not(how):
    member = None if how == "no member" else begun(0, MemberTable(2, 20), 2, is_native=how != "not native")
    computed = []
    round_ = round_of(member, dtype="float16" if how == "float16" else "float64", reduce=computed.append)
    assert not round_.is_native
    round_.run()
    # C code that runs the command list leaves the reduction round to Python.
    commands = CommandList([EnqueueAllReduce(runtime_context().queue, round_)])
    commands.batch.run()
    assert computed == [round_, round_]


def test_all_devices_find_what_others_post():
    table = MemberTable(2, 20)
    assert table.posts(7) is table.member(1).posts(7) is not table.posts(8)

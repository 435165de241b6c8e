"""Arrays are sent in shared memory, even if memory is full, or if dead processes have left segments behind."""

from __future__ import annotations

import errno
import json
import logging
import mmap
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

from optdb.distributed import shared_memory
from optdb.distributed.exchange import PASSED_ON, SMALL_BYTES, Exchange
from optdb.distributed.shared_memory import SharedArrays
from tests.distributed.hosts import in_threads, links
from tests.distributed.test_exchange import OwnMemory
from tests.effort import examples

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="segments need Linux")

PEER = "tcp://there"
LARGE = SMALL_BYTES // 8 + 1

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(endianness="?"),
    hnp.datetime64_dtypes(),
    hnp.byte_string_dtypes(max_len=5),
)
LAYOUTS = {
    "C": lambda array: array,
    "Fortran": np.asfortranarray,
    "reversed": lambda array: array[tuple(slice(None, None, -1) for _ in range(array.ndim))],
    "strided": lambda array: np.repeat(array, 2, axis=0)[::2] if array.ndim else array,
    "broadcast": lambda array: np.broadcast_to(array, (2, *array.shape)),
}


def mapped_here(offer):
    """Return an offer with the process id "self", because a process does not map segments with its own process id."""
    return {**offer, "pid": "self"}


def connect(sender, receiver, address=PEER):
    """Let a receiver map the sender's segment, and confirm this to the sender."""
    offer = sender.offer(address)
    assert receiver.map("tcp://here", mapped_here(offer))
    sender.confirm(address, offer["name"])


def connected(nbytes):
    """Return a sender with a segment of at least so many bytes, and a receiver that has mapped it."""
    sender, receiver = SharedArrays(), SharedArrays()
    assert sender.store(PEER, (1, 0, 0), [np.zeros(nbytes + SMALL_BYTES + 1, "uint8")]) is None
    sender.begin()
    connect(sender, receiver)
    return sender, receiver


def check_same(found, expected):
    assert len(found) == len(expected)
    for array, wanted in zip(found, expected, strict=True):
        assert array.dtype == wanted.dtype and array.shape == wanted.shape
        assert array.tobytes() == np.ascontiguousarray(wanted).tobytes()
        assert array.flags.aligned and not array.flags.writeable


@pytest.fixture(scope="module")
def pair():
    return connected(1 << 20)


@settings(max_examples=examples(200))
@given(data=st.data())
def test_arrays_of_all_kinds(data, pair):
    sender, receiver = pair
    arrays = []
    for _ in range(data.draw(st.integers(1, 4))):
        shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
        array = data.draw(hnp.arrays(data.draw(DTYPES), shape))
        arrays.append(LAYOUTS[data.draw(st.sampled_from(sorted(LAYOUTS)))](array))
    arrays.insert(data.draw(st.integers(0, len(arrays))), np.arange(LARGE, dtype="float64"))
    sender.begin()
    stored = sender.store(PEER, (2, 0, 0), arrays)
    # JSON replaces msgpack, which packs messages: both turn tuples into lists.
    check_same(receiver.find("tcp://here", json.loads(json.dumps(stored))), arrays)


def test_small_arrays_are_sent_in_messages(pair):
    sender, _ = pair
    sender.begin()
    assert sender.store(PEER, (3, 0, 0), [np.zeros(SMALL_BYTES, "uint8")]) is None
    assert sender.store(PEER, (3, 1, 0), [np.zeros(SMALL_BYTES, "uint8"), np.zeros(())]) is not None


@pytest.mark.parametrize(
    "array", [np.zeros(LARGE, [("x", "f8"), ("y", "i4")]), np.array([None] * LARGE), np.zeros(LARGE, "2f8")[:0]]
)
def test_what_a_segment_does_not_hold_is_sent_in_messages(pair, array):
    sender, _ = pair
    sender.begin()
    assert sender.store(PEER, (4, 0, 0), [array]) is None


def test_values_for_workers_without_a_part_are_sent_in_messages(pair):
    sender, _ = pair
    sender.begin()
    assert sender.store(PEER, (5, PASSED_ON, 0), [np.zeros(LARGE)]) is None


def test_arrays_for_several_workers_are_copied_once():
    sender, receiver = connected(8 * LARGE)
    connect(sender, receiver, "tcp://elsewhere")
    array = np.ones(LARGE)
    stored = [sender.store(address, (2, 0, 0), [array]) for address in (PEER, "tcp://elsewhere")]
    assert stored[0] == stored[1] is not None
    # If the segment has no memory left, the next array is not stored, because it must not overwrite the first one.
    assert sender.store(PEER, (2, 1, 0), [2 * array]) is None
    check_same(receiver.find("tcp://here", stored[0]), [array])


def test_a_segment_is_used_again_until_more_is_needed():
    sender, receiver = connected(8 * LARGE)
    names = set()
    for number in range(3):
        sender.begin()
        stored = sender.store(PEER, (number + 2, 0, 0), [np.full(LARGE, number)])
        check_same(receiver.find("tcp://here", stored), [np.full(LARGE, number)])
        names.add(stored["name"])
    earlier = receiver.find("tcp://here", stored)
    sender.begin()
    assert sender.store(PEER, (7, 0, 0), [np.zeros(3 * LARGE)]) is None
    sender.begin()
    assert sender.store(PEER, (8, 0, 0), [np.zeros(3 * LARGE)]) is None, "the new segment was not mapped"
    connect(sender, receiver)
    assert sender.store(PEER, (8, 1, 0), [np.zeros(LARGE)]) is None, "the attempt needs more than the segment has"
    assert len(names) == 1
    sender.begin()
    connect(sender, receiver)
    check_same(receiver.find("tcp://here", sender.store(PEER, (9, 0, 0), [np.zeros(3 * LARGE)])), [np.zeros(3 * LARGE)])
    check_same(earlier, [np.full(LARGE, 2)])  # the memory of views is kept


def test_a_segment_is_used_only_by_workers_that_have_mapped_it():
    sender = SharedArrays()
    assert sender.store(PEER, (1, 0, 0), [np.ones(LARGE)]) is None and sender.offer(PEER) is None
    sender.begin()
    assert sender.offer(PEER) is not None and sender.offer(PEER) is None, "a worker gets an offer once"
    sender.confirm(PEER, "another segment")
    assert sender.store(PEER, (2, 0, 0), [np.ones(LARGE)]) is None
    with pytest.raises(LookupError, match="is not mapped"):
        SharedArrays().find(PEER, {"name": "optdb-x", "layout": []})


def full(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("missing", ["memory", "the function"])
def test_without_memory_arrays_are_sent_in_messages(missing, monkeypatch, caplog, recwarn):
    caplog.set_level(logging.INFO, shared_memory.__name__)
    if missing == "memory":
        monkeypatch.setattr(os, "posix_fallocate", full)
    else:
        monkeypatch.delattr(os, "memfd_create")
    before = len(list(Path("/proc/self/fd").iterdir()))
    sender = SharedArrays()
    for number in range(3):
        sender.begin()
        assert sender.store(PEER, (number + 1, 0, 0), [np.ones(LARGE)]) is None and sender.offer(PEER) is None
    # After the failure, memory of this size is not requested again, and no file stays open.
    assert [record.levelname for record in caplog.records] == ["INFO"] and not recwarn.list
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_segment_that_cannot_grow_stays_in_use(monkeypatch):
    sender, receiver = connected(8 * LARGE)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        assert sender.store(PEER, (2, 0, 0), [np.ones(3 * LARGE)]) is None
        sender.begin()
        stored = sender.store(PEER, (3, 0, 0), [np.ones(LARGE)])
        check_same(receiver.find("tcp://here", stored), [np.ones(LARGE)])


@pytest.mark.parametrize("why", ["own process", "no process", "another file", "no file", "no memory"])
def test_a_segment_that_is_not_accessible_is_not_mapped(why, tmp_path, monkeypatch):
    sender, receiver = SharedArrays(), SharedArrays()
    sender.store(PEER, (1, 0, 0), [np.ones(LARGE)])
    sender.begin()
    offer = sender.offer(PEER)
    with (tmp_path / "file").open("w") as file:
        changes = {
            "own process": {},
            "no process": {"pid": 1 << 30},
            "another file": {"pid": "self", "descriptor": file.fileno()},
            "no file": {"pid": "self", "descriptor": 1 << 20},
            "no memory": {"pid": "self"},
        }
        if why == "no memory":
            monkeypatch.setattr(mmap, "mmap", full)
        assert not receiver.map(PEER, {**offer, **changes[why]})


SENDER = f"""
import json, os, signal, sys
import numpy as np
from optdb.distributed.shared_memory import SharedArrays

sender = SharedArrays()
arrays = [np.arange({LARGE}.0), np.array(7, "int16")]
sender.store("receiver", (1, 0, 0), arrays)
sender.begin()
print(json.dumps(sender.offer("receiver")), flush=True)
sender.confirm("receiver", sys.stdin.readline().strip())
print(json.dumps(sender.store("receiver", (2, 0, 0), arrays)), flush=True)
how = sys.stdin.readline().strip()
if how == "error":
    raise SystemExit(1)
if how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("end", "status"), [("return", 0), ("error", 1), ("kill", -signal.SIGKILL)])
def test_another_process_and_its_end(end, status):
    names = {path.name for path in Path("/dev/shm").iterdir()}
    process = subprocess.Popen(
        [sys.executable, "-c", SENDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    receiver = SharedArrays()
    offer = json.loads(process.stdout.readline())
    assert receiver.map("sender", offer)
    process.stdin.write(offer["name"] + "\n")
    process.stdin.flush()
    stored = json.loads(process.stdout.readline())
    found = receiver.find("sender", stored)
    _, errors = process.communicate(end + "\n")
    assert process.returncode == status and "resource_tracker" not in errors and "Warning" not in errors
    # The views stay valid, although the segment's file has been removed.
    check_same(found, [np.arange(float(LARGE)), np.array(7, "int16")])
    assert not {path.name for path in Path("/dev/shm").iterdir() if "optdb-" in path.name} - names


class InSegments(OwnMemory):
    """A link that sends large arrays in shared memory to the ranks in `reachable`, and as copies to other ranks."""

    reachable = frozenset(range(8))

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.shared = SharedArrays()
        self.sent = []

    def send(self, rank, tag, arrays):
        stored = self.shared.store(str(rank), tag, arrays)
        self.sent.append(stored is not None)
        super().send(rank, tag, [array.copy() for array in arrays] if stored is None else [stored])

    def receive(self, rank, tag):
        arrays = self._mailboxes[self._rank].take(self._names[rank], tag)
        stored = arrays[0] if arrays and isinstance(arrays[0], dict) else None
        return arrays if stored is None else self.shared.find(str(rank), stored)


def join(between):
    """Begin an attempt on all links, and let ranks that can reach each other map each other's segments."""
    for link in between:
        link.shared.begin()
    for sender, link in enumerate(between):
        for receiver, other in enumerate(between):
            reach = link.reachable >= {sender, receiver}
            offer = link.shared.offer(str(receiver)) if reach and sender != receiver else None
            if offer is not None:
                assert other.shared.map(str(sender), mapped_here(offer))
                link.shared.confirm(str(receiver), offer["name"])


@pytest.mark.parametrize("reachable", [{0, 1, 2, 3}, {0, 1}, {1, 2}], ids=str)
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_sums_equal_those_of_messages_bit_by_bit(workers, reachable, monkeypatch):
    monkeypatch.setattr(InSegments, "reachable", reachable)
    rng = np.random.RandomState(0)
    given = [[rng.standard_normal(16 * LARGE).astype("float32"), rng.standard_normal(7)] for _ in range(workers)]
    results = []
    for kind in (OwnMemory, InSegments):
        between, found = links(workers, link=kind), []
        for attempt in range(1, 4):
            if kind is InSegments:
                join(between)
            exchanges = [Exchange(between[rank], rank, workers, 0, attempt) for rank in range(workers)]
            sums = [[np.empty_like(vector) for vector in vectors] for vectors in given]

            def work(rank, exchanges=exchanges, sums=sums):
                exchanges[rank].reduce(0, given[rank], sums[rank])
                return exchanges[rank].all_reduce(1, given[rank])

            totals = in_threads(work, workers)
            found.append([[array.tobytes() for array in arrays] for arrays in (*sums, *totals)])
        results.append(found)
    assert results[0] == results[1]
    assert all(one == other for one, other in pairwise(results[1]))
    # In a ring, each rank sends to the next rank only.
    used = [any(link.sent) for link in between]
    assert used == [reachable >= {rank, (rank + 1) % workers} for rank in range(workers)]

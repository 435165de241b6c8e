"""Sums over workers: their values, the order of terms, discarded messages, and errors that end a wait."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from optdb.distributed.errors import Aborted, WorkerTimeout
from optdb.distributed.exchange import BLOCK_BYTES, PACKED_BYTES, SMALL_BYTES, Exchange, Mailbox
from optdb.distributed.worker_threads import ThreadLink
from tests.distributed.hosts import in_threads, links

SIZES = [1, 5, max(SMALL_BYTES, PACKED_BYTES) // 8 + 3]


class OwnMemory(ThreadLink):
    """A link that copies the arrays for each receiver, as messages between processes do."""

    received_is_writable = True
    shares_memory = False

    def receive(self, rank, tag):
        return [array.copy() for array in super().receive(rank, tag)]


class ReadOnly(OwnMemory):
    """A link whose received arrays are read-only, like the arrays in some messages."""

    def receive(self, rank, tag):
        arrays = super().receive(rank, tag)
        for array in arrays:
            array.flags.writeable = False
        return arrays


@pytest.mark.parametrize("link", [ThreadLink, OwnMemory, ReadOnly])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_all_workers_get_the_same_sums(workers, size, link):
    rng = np.random.RandomState(0)
    given = [
        [rng.standard_normal((size,)), rng.standard_normal((2, 3)).astype("float32"), np.array(rank)]
        for rank in range(workers)
    ]
    copies = [[array.copy() for array in arrays] for arrays in given]
    between = links(workers, link=link)
    found = in_threads(lambda rank: Exchange(between[rank], rank, workers, 0, 1).all_reduce(0, given[rank]), workers)
    for i, like in enumerate(given[0]):
        expected = sum(arrays[i].astype("float64") for arrays in given)
        for totals in found:
            assert totals[i].dtype == like.dtype and totals[i].shape == like.shape
            np.testing.assert_allclose(totals[i], expected, rtol=1e-6, atol=1e-6)
            assert totals[i].tobytes() == found[0][i].tobytes()
    for arrays, before in zip(given, copies, strict=True):
        assert all((array == old).all() for array, old in zip(arrays, before, strict=True))


@pytest.mark.parametrize("link", [ThreadLink, OwnMemory, ReadOnly])
@pytest.mark.parametrize("size", [0, *SIZES, 3 * BLOCK_BYTES // 8 + 1])
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_sums_are_written_into_vectors_that_are_given(workers, size, link):
    rng = np.random.RandomState(1)
    given = [[rng.standard_normal(size), rng.standard_normal(7).astype("float16")] for _ in range(workers)]
    before = [[vector.copy() for vector in vectors] for vectors in given]
    sums = [[np.full_like(vector, np.nan) for vector in vectors] for vectors in given]
    between = links(workers, link=link)

    def work(rank):
        exchange = Exchange(between[rank], rank, workers, 0, 1)
        for number in range(2):
            exchange.reduce(number, given[rank], sums[rank])

    in_threads(work, workers)
    for i, like in enumerate(given[0]):
        expected = sum(vectors[i].astype("float64") for vectors in before)
        for totals in sums:
            np.testing.assert_allclose(totals[i], expected, rtol=1e-2 if like.dtype == "float16" else 1e-12, atol=1e-2)
            assert totals[i].tobytes() == sums[0][i].tobytes()
    for vectors, old in zip(given, before, strict=True):
        assert all((vector == was).all() for vector, was in zip(vectors, old, strict=True))


def test_workers_without_a_part_get_what_the_first_one_passes_on():
    between = links(3)

    def work(rank):
        exchange = Exchange(between[rank], rank, 1, 2, 1)
        if rank:
            return exchange.receive_passed()
        exchange.pass_on([np.arange(3)])
        return [np.arange(3)]

    for arrays in in_threads(work, 3):
        np.testing.assert_array_equal(arrays[0], np.arange(3))


def test_a_wait_ends_at_the_timeout_and_names_the_worker():
    with pytest.raises(WorkerTimeout, match=r"from worker 7 within 0\.05 seconds"):
        Mailbox(0.05).take("worker 7", (1, 0, 0))


def test_a_wait_ends_when_the_attempt_is_given_up():
    mailbox = Mailbox(20)
    mailbox.begin(3)
    threading.Timer(0.05, mailbox.abort, (3, "worker 7 has died")).start()
    with pytest.raises(Aborted, match="worker 7 has died"):
        mailbox.take("worker 7", (3, 0, 0))


def test_an_attempt_that_was_given_up_before_it_began_stays_so():
    mailbox = Mailbox(20)
    mailbox.abort(3, "worker 7 has died")
    mailbox.begin(3)
    with pytest.raises(Aborted):
        mailbox.take("worker 7", (3, 0, 0))
    mailbox.begin(4)
    mailbox.deliver("worker 7", (4, 0, 0), [np.ones(1)])
    assert mailbox.take("worker 7", (4, 0, 0))[0] == 1


def test_messages_of_attempts_that_are_over_are_dropped():
    mailbox = Mailbox(0.05)
    mailbox.deliver("worker 7", (1, 0, 0), [np.zeros(1)])
    mailbox.deliver("worker 7", (2, 0, 0), [np.ones(1)])
    mailbox.begin(2)
    mailbox.deliver("worker 7", (1, 0, 1), [np.zeros(1)])
    assert mailbox.take("worker 7", (2, 0, 0))[0] == 1
    for tag in ((1, 0, 0), (1, 0, 1)):
        with pytest.raises((WorkerTimeout, Aborted)):
            mailbox.take("worker 7", tag)

"""Either all threads of a process commit a step, or none does."""

from __future__ import annotations

import numpy as np
import pytest

from optdb.distributed import DataParallel, WorkerFailed, worker_threads
from optdb.distributed.errors import Aborted
from optdb.distributed.replicas import SynchronousReplica
from optdb.distributed.worker_threads import Agreement
from optdb.runtime.driver_batches import loop_library
from tests.distributed.hosts import in_threads
from tests.distributed.training import batches, check, step, two_devices


@pytest.fixture(scope="module")
def devices():
    return two_devices()


@pytest.fixture(params=["by a lock", "native"])
def votes(request, monkeypatch):
    """Run a test with both ways in which threads agree: with a lock (if there is no C compiler), and in C."""
    if request.param == "by a lock":
        monkeypatch.setattr(worker_threads, "loop_library", lambda: None)
    elif not loop_library():
        pytest.skip("there is no C compiler")


@pytest.mark.usefixtures("votes")
def test_all_agree():
    agreement = Agreement(3, 20)
    assert in_threads(lambda rank: agreement.agree(), 3) == [None] * 3
    agreement.abort("too late")
    assert agreement.is_reached


@pytest.mark.usefixtures("votes")
def test_one_that_fails_lets_nobody_agree():
    agreement = Agreement(3, 20)

    def work(rank):
        if rank == 2:
            return agreement.abort("it has failed")
        with pytest.raises(Aborted, match="it has failed"):
            agreement.agree()

    in_threads(work, 3)
    assert not agreement.is_reached
    with pytest.raises(Aborted):
        agreement.agree()


@pytest.mark.usefixtures("votes")
def test_nobody_waits_for_ever():
    agreement = Agreement(2, 0.05)
    with pytest.raises(Aborted, match="in time"):
        agreement.agree()
    with pytest.raises(Aborted):
        agreement.agree()
    assert not agreement.is_reached


@pytest.mark.slow
def test_an_update_that_fails_in_one_thread_is_made_by_none(devices, monkeypatch):
    f, given, commits = step(), batches(6), [0]
    commit = SynchronousReplica._commit

    def fail_once(self, agree):
        commits[0] += 1
        if commits[0] == 6:
            raise MemoryError("no room for an update")
        commit(self, agree)

    monkeypatch.setattr(SynchronousReplica, "_commit", fail_once)
    with DataParallel(f, devices=devices) as train:
        found = [train(*batch) for batch in given[:2]]
        with pytest.raises(WorkerFailed, match="no room for an update"):
            train(*given[2])
        assert train.steps == 2
        found += train.train(given[2:])
        check(f, found, [train.get(shared) for shared in f.get_shared()], given)


@pytest.mark.slow
def test_an_update_that_fails_once_all_have_agreed_is_made_by_the_next_step(devices, monkeypatch):
    f, given, commits = step(), batches(6), [0]
    commit = SynchronousReplica._commit

    def fail_twice(self, agree):
        commits[0] += 1
        if commits[0] in (3, 6):
            agree()
            raise MemoryError("no room for an update")
        commit(self, agree)

    monkeypatch.setattr(SynchronousReplica, "_commit", fail_twice)
    with DataParallel(f, devices=devices) as train:
        found = train.train(given)
        check(f, found, [train.get(shared) for shared in f.get_shared()], given)
    assert commits[0] == 2 * len(given) + 2


@pytest.mark.slow
def test_results_that_get_lost_undo_no_step(devices, monkeypatch):
    f, given = step(), batches(5)
    complete = SynchronousReplica.complete

    def lose(self, prepared):
        raise OSError("the device is gone")

    with DataParallel(f, devices=devices) as train:
        found = train.train(given[:3])
        with monkeypatch.context() as patch:
            patch.setattr(SynchronousReplica, "complete", lose)
            with pytest.raises(WorkerFailed, match="the device is gone"):
                train(*given[3])
        monkeypatch.setattr(SynchronousReplica, "complete", complete)
        assert train.steps == 4
        found += [None, train(*given[4])]
        state = [train.get(shared) for shared in f.get_shared()]
        for first, second in zip(*(replica.state() for replica in train._group._replicas), strict=True):
            np.testing.assert_array_equal(first, second)
    with DataParallel(f, devices=devices) as again:
        found[3] = again.train(given)[3]
    check(f, found, state, given)

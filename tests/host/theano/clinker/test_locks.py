"""Locks between processes."""

from __future__ import annotations

import multiprocessing
import os
import signal

from optdb.host.theano.clinker import locks
from optdb.host.theano.clinker.locks import FileLock
from optdb.host.theano.clinker.store import Stage, _remove_abandoned


def test_it_is_held_by_one(tmp_path):
    first, second = FileLock(tmp_path / "a" / "lock"), FileLock(tmp_path / "a" / "lock")
    assert first.acquire()
    assert not second.acquire(blocking=False)
    first.release()
    assert second.acquire(blocking=False)


def test_a_released_lock_leaves_nothing(tmp_path):
    with FileLock(tmp_path / "lock"):
        assert (tmp_path / "lock").exists()
    assert not (tmp_path / "lock").exists()


def test_who_waits_for_a_removed_lock_gets_the_next(tmp_path):
    path = tmp_path / "lock"
    first = FileLock(path)
    first.acquire()
    waiting = os.open(path, os.O_RDWR)  # a process that waits for the lock has its file open
    first.release(remove=True)
    second = FileLock(path)
    assert second.acquire(blocking=False)
    assert not FileLock(path).acquire(blocking=False)
    os.close(waiting)


def _hold(parent, ready):
    stage = Stage(parent)
    (stage.folder() / "file").touch()
    ready.set()
    signal.pause()


def test_what_a_killed_process_was_making_is_removed(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=_hold, args=(tmp_path, ready))
    process.start()
    assert ready.wait(10)
    _remove_abandoned(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2  # the folder, which is in use, and its lock
    process.kill()
    process.join()
    _remove_abandoned(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_another_thread_is_about_to_discard_does_not_stop_a_forked_process(tmp_path):
    lock = FileLock(tmp_path / "lock")  # like a lock that is being released: no longer held, but not discarded yet
    locks._held.add(lock)
    locks._leave_to_parent()
    assert lock not in locks._held

"""Checkpoint files."""

from __future__ import annotations

import numpy as np
import pytest
import theano

from optdb.distributed import checkpoints


@pytest.fixture
def shared():
    return [theano.shared(np.arange(3.0), "w"), theano.shared(np.random.RandomState(3), "rng")]


def test_a_state_comes_back(tmp_path, shared):
    path = checkpoints.save(tmp_path / "new", [np.ones(3), np.random.RandomState(5)], 7, shared)
    assert checkpoints.latest(tmp_path / "new") == path
    (w, rng), steps = checkpoints.load(path, shared)
    assert steps == 7
    np.testing.assert_array_equal(w, np.ones(3))
    assert rng.randint(1000) == np.random.RandomState(5).randint(1000)


def test_the_last_two_files_stay(tmp_path, shared):
    for steps in (9, 10, 100):
        checkpoints.save(tmp_path, [np.full(3, float(steps)), np.random.RandomState(0)], steps, shared)
    assert len(list(tmp_path.iterdir())) == 2
    assert checkpoints.load(checkpoints.latest(tmp_path), shared)[1] == 100


def test_a_write_that_fails_leaves_the_file_before(tmp_path, shared, monkeypatch):
    first = checkpoints.save(tmp_path, [np.ones(3), np.random.RandomState(0)], 1, shared)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints.files.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device\. The cure: give checkpoint= a folder with space"):
        checkpoints.save(tmp_path, [np.zeros(3), np.random.RandomState(0)], 2, shared)
    assert list(tmp_path.iterdir()) == [first]


def test_no_file(tmp_path):
    assert checkpoints.latest(tmp_path / "missing") is None


def test_the_state_of_another_function_is_refused(tmp_path, shared):
    path = checkpoints.save(tmp_path, [np.ones(3), np.random.RandomState(0)], 1, shared)
    with pytest.raises(ValueError, match="shared variables w, rng, but the function has other"):
        checkpoints.load(path, [theano.shared(np.ones(3), "other")])
    renamed = [theano.shared(np.ones((3, 3)), "w"), shared[1]]
    with pytest.raises(ValueError, match="for w"):
        checkpoints.load(path, renamed)

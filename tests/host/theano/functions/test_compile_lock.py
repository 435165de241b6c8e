"""Theano's lock of the compiledir on a full disk."""

from __future__ import annotations

import pytest
from theano.gof import compilelock

from optdb.host.theano.importing.support import UnusableCompiledir
from tests.disks import full_disk


def test_a_full_disk_is_an_error_that_names_the_folder(tmp_path, monkeypatch):
    def sleep(seconds):
        raise AssertionError("waits for a lock of nobody's")

    monkeypatch.setattr(compilelock.time, "sleep", sleep)
    with full_disk(tmp_path / "full") as folder:
        with pytest.raises(UnusableCompiledir, match=r"No space left on device: .*/full\nThe cure: free some space"):
            compilelock.lock(str(folder / "lock_dir"), min_wait=0, max_wait=0)
        assert not (folder / "lock_dir").exists()


def test_the_lock_is_taken(tmp_path):
    compilelock.lock(str(tmp_path / "new" / "lock_dir"))
    assert (tmp_path / "new" / "lock_dir" / "lock").read_text()

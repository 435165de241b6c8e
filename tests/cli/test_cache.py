"""Tests of ``python -m optdb cache``, and of what ``doctor`` prints about the cache."""

from __future__ import annotations

import pytest

from optdb.runtime.binaries import Binaries
from tests.processes import python


@pytest.fixture
def kept(tmp_path):
    kept = Binaries(tmp_path / "kernels")
    for name in "ab":
        kept.save(64 * name, bytes(2**20))
    return kept


@pytest.mark.slow
def test_shows_and_clears(kept):
    flags = f"optdb.kernel_cache_dir={kept.folder},optdb.kernel_cache_size=30"
    done = python("-m", "optdb", "cache", flags=flags)
    assert done.returncode == 0, done.stderr
    assert f"2 program(s), 2.0 of 30 MB, in\n    {kept.folder}\n" in done.stdout
    assert f"{12 * 'a'}     1,024.0 kB" in done.stdout
    assert len(kept.entries()) == 2
    done = python("-m", "optdb", "cache", "--clear", flags=flags)
    assert done.returncode == 0, done.stderr
    assert "removed 2 program(s)" in done.stdout
    assert "0 program(s), 0.0 of 30 MB" in done.stdout
    assert kept.entries() == []


@pytest.mark.slow
def test_nothing_there_and_nothing_wanted(tmp_path):
    done = python("-m", "optdb", "cache", flags=f"optdb.kernel_cache_dir={tmp_path / 'x'},optdb.kernel_cache_size=0")
    assert done.returncode == 0, done.stderr
    assert "0 program(s), 0.0 MB; none is added (optdb.kernel_cache_size is 0)" in done.stdout
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_doctor_tells(kept, tmp_path):
    wide = {"COLUMNS": "300"}
    done = python("-m", "optdb", "doctor", flags=f"cxx=,optdb.kernel_cache_dir={kept.folder}", env=wide)
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(kept.folder) in done.stdout
    assert "2 program(s), 2.0 of 512 MB" in done.stdout
    (tmp_path / "file").touch()
    done = python("-m", "optdb", "doctor", flags=f"cxx=,optdb.kernel_cache_dir={tmp_path / 'file'}", env=wide)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n    export THEANO_FLAGS=optdb.kernel_cache_dir=FOLDER\n" in done.stdout

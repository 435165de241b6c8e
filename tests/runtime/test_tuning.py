"""Tuning results are stored on disk for one device, driver and version, and damaged files are harmless."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from optdb.runtime import binaries, tuning
from optdb.user_cache import cache_dir
from tests.runtime.fake_devices import FakeDevice


def device(name="gpu", driver="1.0", units=4):
    return FakeDevice(name, "a platform ", units=units, driver_version=driver)


def key(*args, kind="matmul", dtype="float32", version="1", **kwargs):
    return tuning.key_of(device(*args, **kwargs), kind, dtype, version)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(binaries, "_current", None)
    return binaries.configure(tmp_path / "new").folder


def test_what_was_found_comes_back(folder):
    assert tuning.load(key()) is None
    path = tuning.save(key(), {"square": [1, 2]})
    assert path.parent == folder and [path] == list(folder.iterdir())
    assert tuning.load(key()) == {"square": [1, 2]}
    tuning.save(key(), {"square": 3})
    assert tuning.load(key()) == {"square": 3}
    tuning.forget(key())
    assert tuning.load(key()) is None
    tuning.forget(key())


@pytest.mark.parametrize(
    "other",
    [key("another"), key(driver="1.1"), key(units=2), key(kind="x"), key(dtype="float64"), key(version="2")],
)
def test_it_is_for_what_it_was_found_for(folder, other):
    tuning.save(key(), {"square": 1})
    assert tuning.load(other) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"key": 1, "found": {}}', "\xff\xfe", '{"found": {}}'])
def test_a_damaged_file_counts_as_not_there(folder, content):
    path = tuning.save(key(), {"square": 1})
    path.write_text(content, "latin-1")
    assert tuning.load(key()) is None
    tuning.save(key(), {"square": 2})
    assert tuning.load(key()) == {"square": 2}


@pytest.mark.parametrize("content", [b"[" * 200_000, b'{"found": 1e400}', b"9" * 100_000])
def test_a_file_that_no_tuner_wrote_counts_as_not_there(folder, content):
    path = tuning.save(key(), {"square": 1})
    path.write_bytes(content)
    assert tuning.load(key()) is None
    path.unlink()
    os.mkfifo(path)
    assert tuning.load(key()) is None
    tuning.save(key(), {"square": 2})
    assert tuning.load(key()) == {"square": 2}


def test_a_finding_of_another_kind_under_the_same_name(folder):
    path = tuning.save(key(), {"square": 1})
    tuning.path_of(key("another")).write_bytes(path.read_bytes())
    assert tuning.load(key("another")) is None


def test_an_interrupted_write_leaves_what_was_there(folder, monkeypatch):
    tuning.save(key(), {"square": 1})

    def interrupted(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tuning.save(key(), {"square": 2})
    assert tuning.load(key()) == {"square": 1}
    assert len(list(folder.iterdir())) == 1


def test_folders(monkeypatch):
    monkeypatch.setattr(binaries, "_current", None)
    assert tuning.path_of(key()).parent == cache_dir() / "kernels"
    assert binaries.configure("~/somewhere").folder == Path.home() / "somewhere"
    assert tuning.path_of(key()).parent == Path.home() / "somewhere"

"""Modules are stored correctly even if folders cannot be removed, disks are full, or clocks are set back."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import theano  # noqa: F401 (before what is a part of its import)

from optdb.host.theano.clinker import store
from optdb.host.theano.clinker.store import SECONDS_BETWEEN_CLEANUPS, ModuleStore, StoredModule
from optdb.host.theano.importing.support import UnusableCompiledir

MODULE = StoredModule("hash", "name", "source", ())
DAY_S = 24 * 60 * 60


@pytest.fixture
def modules(tmp_path):
    modules = ModuleStore(tmp_path)
    yield modules
    modules.close()


@pytest.fixture
def library(tmp_path):
    path = tmp_path / "unit.so"
    path.write_bytes(b"library")
    return path


def test_the_rest_of_a_module_is_replaced(modules, library):
    target = modules.library("hash", "name")
    target.parent.mkdir()
    (target.parent / "mod.cpp").touch()
    assert modules.publish(MODULE, library) == target
    assert target.read_bytes() == b"library"


def test_a_rest_that_cannot_be_removed_is_named_with_the_cure(modules, library, monkeypatch):
    target = modules.library("hash", "name")
    target.parent.mkdir()
    (target.parent / "mod.cpp").touch()
    removed = []
    rmtree = store.shutil.rmtree

    def remove(path, **options):
        removed.append(path)
        if path != target.parent:
            rmtree(path, **options)

    monkeypatch.setattr(store.shutil, "rmtree", remove)
    with pytest.raises(UnusableCompiledir, match="base_compiledir=FOLDER") as caught:
        modules.publish(MODULE, library)
    assert str(target.parent) in str(caught.value)
    assert removed.count(target.parent) == store.MAX_ATTEMPTS


def _published_long_ago(modules, library):
    target = modules.publish(MODULE, library)
    long_ago = time.time() - 100 * DAY_S
    os.utime(target, (long_ago, long_ago))
    return target


@pytest.mark.parametrize("cleaned_s", [-2 * SECONDS_BETWEEN_CLEANUPS, 2 * SECONDS_BETWEEN_CLEANUPS])
def test_old_modules_are_removed_also_after_a_clock_is_put_back(modules, library, cleaned_s):
    target = _published_long_ago(modules, library)
    stamp = modules.folder / "cleaned"
    stamp.touch()
    os.utime(stamp, (time.time() + cleaned_s,) * 2)
    modules.clean_up(DAY_S)
    assert not target.exists()


def test_a_clean_up_waits_for_a_disk_with_space(modules, library, monkeypatch):
    target = _published_long_ago(modules, library)

    def refuse(path, *args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "touch", refuse)
        modules.clean_up(DAY_S)
    assert target.exists()


def test_another_process_may_remove_modules_meanwhile(modules, library, monkeypatch):
    target = _published_long_ago(modules, library)
    gone = target.with_name("gone.so")
    monkeypatch.setattr(Path, "glob", lambda path, pattern: iter([gone, target] if pattern.startswith("tmp") else []))
    modules.clean_up(DAY_S)
    assert not target.exists()

"""Barriers over all groups of a launch are tried once per device; the stored result of a failed trial has a reason."""

from __future__ import annotations

import errno
import subprocess
import threading
import time

import pytest

from optdb.runtime import binaries, grid_barriers, tuning
from optdb.runtime.context import Context
from optdb.runtime.grid_barriers import GRID_BARRIERS, is_tried, kept_findings, try_barriers, usable_barrier


@pytest.fixture
def context(monkeypatch, tmp_path):
    """Return a context of a device on which no barrier has been tried."""
    monkeypatch.setattr(tuning, "path_of", lambda key: tmp_path / "finding.json")
    return Context("opencl")


def test_all_barriers_are_tried_in_processes_of_their_own(context, monkeypatch):
    findings = {"PTX release": b"", "atomics": b'noise\n{"right": true, "us": 1.5}\n'}
    tried = []

    def run(command, **kwargs):
        tried.append(command[-1])
        return subprocess.CompletedProcess(command, 0, findings[command[-1]], b"it crashed\n")

    monkeypatch.setattr(grid_barriers.subprocess, "run", run)
    assert usable_barrier(context) is GRID_BARRIERS["atomics"]
    assert tried == list(GRID_BARRIERS)
    found = kept_findings(context)
    assert found["PTX release"] == {"right": False, "reason": "the trial ended with status 0: it crashed"}
    assert tried == list(GRID_BARRIERS)  # no new trial: the findings were read from disk
    assert usable_barrier(context) is GRID_BARRIERS["atomics"]


def test_a_trial_that_takes_too_long_has_failed(context, monkeypatch):
    def run(command, *, timeout, **kwargs):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(grid_barriers.subprocess, "run", run)
    assert usable_barrier(context) is None
    assert kept_findings(context)["atomics"]["reason"].startswith("the trial did not finish in")


def test_the_first_barrier_that_is_right_is_enough(context, monkeypatch):
    tried = []

    def run(command, **kwargs):
        tried.append(command[-1])
        return subprocess.CompletedProcess(command, 0, b'{"right": true, "us": 1.5}\n', b"")

    monkeypatch.setattr(grid_barriers.subprocess, "run", run)
    first, *others = GRID_BARRIERS
    assert usable_barrier(context) is GRID_BARRIERS[first]
    assert tried == [first]
    assert list(try_barriers(context, until_right=False)) == [first, *others]


def test_a_device_is_tried_again_if_no_process_could_be_started(context, monkeypatch):
    def run(command, **kwargs):
        raise OSError("too many processes")

    monkeypatch.setattr(grid_barriers.subprocess, "run", run)
    assert usable_barrier(context) is None
    assert tuning.load("any") is None


def test_a_finding_that_cannot_be_kept_is_told_with_the_cure(context, monkeypatch):
    def run(command, **kwargs):
        return subprocess.CompletedProcess(command, 0, b'{"right": true, "us": 1.5}\n', b"")

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(grid_barriers.subprocess, "run", run)
    monkeypatch.setattr(tuning, "replace_file", full)
    monkeypatch.setattr(binaries.current(), "_warned", False)
    with pytest.warns(RuntimeWarning, match="No space left on device.*\n.*optdb.kernel_cache_dir"):
        assert usable_barrier(context) is next(iter(GRID_BARRIERS.values()))


def test_a_trial_goes_on_in_the_background(context, monkeypatch):
    ended = threading.Event()

    def run(command, **kwargs):
        ended.wait(60)
        return subprocess.CompletedProcess(command, 0, b'{"right": true, "us": 1.5}\n', b"")

    monkeypatch.setattr(grid_barriers.subprocess, "run", run)
    assert not is_tried(context) and not is_tried(context)
    ended.set()
    until = time.monotonic() + 60
    while not is_tried(context):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert usable_barrier(context) is next(iter(GRID_BARRIERS.values()))


def test_a_device_without_a_barrier_has_none(context, monkeypatch):
    monkeypatch.setattr(grid_barriers, "kept_findings", lambda context: {"atomics": {"right": "yes"}, "other": {}})
    assert usable_barrier(context) is None


@pytest.mark.slow
def test_the_trial_comes_to_its_end_on_a_processor(context):
    found = try_barriers(context, until_right=False)
    assert list(found) == list(GRID_BARRIERS)
    assert "does not build" in found["PTX release"]["reason"]
    # On a busy processor, groups that wait for each other may also reach the time limit.
    reason = found["atomics"].get("reason", "")
    assert found["atomics"]["right"] or "wait for each other" in reason or "did not finish" in reason

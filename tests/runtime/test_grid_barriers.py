"""Barriers over all groups of a launch are tried once for a device, and a trial that fails says why."""

from __future__ import annotations

import subprocess

import pytest

from optdb.runtime import grid_barriers, tuning
from optdb.runtime.context import Context
from optdb.runtime.grid_barriers import GRID_BARRIERS, kept_findings, usable_barrier


@pytest.fixture
def context(monkeypatch, tmp_path):
    """Return a context of a device that has not been tried."""
    monkeypatch.setattr(tuning, "path_of", lambda key: tmp_path / "finding.json")
    return Context("opencl")


def test_all_barriers_are_tried_in_processes_of_their_own(context, monkeypatch):
    findings = {
        "atomics, PTX teams": b'noise\n{"right": false, "reason": "it does not build"}\n',
        "PTX release": b"",
        "PTX membar": b"",
        "atomics": b'{"right": true, "us": 1.5}\n',
    }
    tried = []

    def run(command, *, timeout, **kwargs):
        tried.append(command[-1])
        if command[-1] == "PTX fence":
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, 0, findings[command[-1]], b"it crashed\n")

    monkeypatch.setattr(grid_barriers.subprocess, "run", run)
    assert usable_barrier(context) is GRID_BARRIERS["atomics"]
    assert tried == list(GRID_BARRIERS)
    found = kept_findings(context)
    assert found["PTX membar"] == {"right": False, "reason": "the trial ended with status 0: it crashed"}
    assert found["PTX fence"]["reason"].startswith("no end after")
    assert tried == list(GRID_BARRIERS)  # the second time, from disk
    assert usable_barrier(context) is GRID_BARRIERS["atomics"]


def test_a_device_without_a_barrier_has_none(context, monkeypatch):
    monkeypatch.setattr(grid_barriers, "kept_findings", lambda context: {"atomics": {"right": "yes"}, "other": {}})
    assert usable_barrier(context) is None


@pytest.mark.slow
def test_the_trial_comes_to_its_end_on_a_processor(context):
    found = kept_findings(context)
    assert list(found) == list(GRID_BARRIERS)
    assert "does not build" in found["PTX membar"]["reason"]
    assert found["atomics"]["right"] or "wait for each other" in found["atomics"]["reason"]

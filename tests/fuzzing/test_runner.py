"""Chunks that crash, hang or raise are reported, and the other chunks still run."""

from __future__ import annotations

import os
import time

import pytest

from fuzzing.runner import report_chunks, run_chunks, run_worker

WORKER = """
import os, sys, time
print("begins", flush=True)
match sys.argv[1]:
    case "crash":
        os.abort()
    case "hang":
        time.sleep(60)
    case "raise":
        raise LookupError("no luck")
    case "differ":
        sys.exit(3)
"""


@pytest.fixture
def worker(monkeypatch, tmp_path):
    """Return a function that runs a worker with given behaviour."""
    (tmp_path / "worker_of_test.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(what, timeout=30.0, **options):
        return run_worker("worker_of_test", (what,), timeout, **options)

    return run


def test_a_worker_that_ends_well(worker):
    end = worker("end")
    assert (end.printed, end.trouble) == ("begins\n", "")
    assert worker("differ", expected=(0, 3)).trouble == ""


def test_a_worker_that_crashes(worker):
    assert worker("crash").trouble.startswith("status -6:\nbegins")


def test_a_worker_that_hangs_is_killed_and_what_it_printed_is_shown(worker):
    begun = time.monotonic()
    end = worker("hang", timeout=1.0)
    assert end.trouble == "no end within 1 seconds:\nbegins\n"
    assert time.monotonic() - begun < 30


def test_a_worker_that_raises(worker):
    trouble = worker("raise").trouble
    assert trouble.startswith("status 1:\nbegins")
    assert "LookupError: no luck" in trouble


def test_an_unexpected_status(worker):
    assert worker("differ").trouble.startswith("status 3:")


def test_variables_are_added(tmp_path, monkeypatch):
    (tmp_path / "shown.py").write_text("import os; print(os.environ['SHOWN'], os.environ['KEPT'])")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("KEPT", "kept")
    assert run_worker("shown", (), 30.0, {"SHOWN": "shown"}).printed == "shown kept\n"
    assert "SHOWN" not in os.environ


def test_all_chunks_are_run_and_the_wrong_ones_counted(worker, capsys):
    chunks = ["end", "crash", "raise", "hang", "end"]
    seen = []

    def progress(chunk, failures):
        seen.append(chunk)
        return f"{len(seen)} of 5, {failures} wrong"

    assert report_chunks(chunks, lambda what: worker(what, timeout=2.0).trouble, 2, progress) == 3
    assert sorted(seen) == sorted(chunks)
    printed = capsys.readouterr().out
    assert "5 of 5, 3 wrong" in printed
    for words in ("status -6", "LookupError: no luck", "no end within 2 seconds", " hang "):
        assert words in printed


def test_an_error_of_the_runner_ends_it():
    started = []

    def run(chunk):
        started.append(chunk)
        if chunk == 0:
            raise OSError("no such program")
        time.sleep(0.01)

    with pytest.raises(OSError, match="no such program"):
        list(run_chunks(range(1000), run, 1))
    assert len(started) < 1000

"""``python -m optdb doctor --report FILE`` writes a report to a file."""

from __future__ import annotations

import pytest

from optdb.cli import bug_report
from tests.processes import python


def test_a_part_that_fails_is_in_the_report(tmp_path, monkeypatch):
    def fails(**options):
        raise RuntimeError("no such driver")

    monkeypatch.setattr(bug_report.hardware, "report", fails)
    monkeypatch.setattr(bug_report.patches, "report_patches", lambda: print("patches") or 0)
    monkeypatch.setattr(bug_report, "chosen_checks", lambda: {"one": lambda: "fine"})
    monkeypatch.setenv("OPTDB_SOMETHING", "1")
    monkeypatch.setenv("PASSWORD", "secret")
    monkeypatch.setenv("PYTHONPATH", "/srv/private")
    file = tmp_path / "report.txt"
    assert bug_report.write_report(file) == 0
    text = file.read_text()
    sections = [line[3:] for line in text.splitlines() if line.startswith("== ")]
    assert sections[:4] == ["system", "packages", "environment variables", "checks"]
    assert sections[4:] == ["flags with non-default values", "devices", "patches"]
    for part in (
        "RuntimeError: no such driver",
        "OPTDB_SOMETHING=1",
        "one  works  fine",
        "numpy ",
        "PYTHONPATH=$FOLDER",
    ):
        assert part in text
    assert "secret" not in text
    assert "/srv" not in text


@pytest.mark.slow
def test_it_is_written_where_theano_cannot_be_imported(tmp_path):
    file = tmp_path / "report.txt"
    env = {"THEANO_FLAGS": "base_compiledir=/proc/none"}
    done = python("-m", "optdb", "doctor", "--report", str(file), env=env)
    assert done.returncode == 1
    text = file.read_text()
    for part in ("== patches", "opencl0:0", "THEANO_FLAGS=base_compiledir=/proc/none", "theano  fails"):
        assert part in text


@pytest.mark.slow
def test_here(tmp_path):
    file = tmp_path / "report.txt"
    done = python("-m", "optdb", "doctor", "--report", str(file), flags="cxx=,floatX=float32")
    assert done.returncode == 0, done.stderr
    text = file.read_text()
    for part in ("Theano 1.0.5", "floatX=float32", "opencl0:0", "FunctionMaker.create", "kernel cache"):
        assert part in text


def test_a_file_that_cannot_be_written():
    done = python("-m", "optdb", "doctor", "--report", "/proc/none/report.txt")
    assert done.returncode == 1
    assert "The cure: name another file" in done.stderr

"""Altered files are rejected with a message, or behave as they declare; violations are detected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from fuzzing.files import runner
from fuzzing.files.__main__ import main, show
from fuzzing.files.corpus import corpus
from fuzzing.files.mutants import mutant, packed
from fuzzing.files.runner import Settings, run
from optdb.runtime.exported import load

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are those of Linux")


@pytest.mark.slow
def test_some_hundred_mutants(tmp_path):
    seen = []
    report = run(Settings(400, tmp_path, seed=7, workers=1, kernels_share=0), lambda: seen.append(1))
    assert report.wrong == {}
    assert sum(report.outcomes.values()) == len(seen) == 400
    outcomes = {outcome for _, outcome in report.outcomes}
    assert {"load: FileError", "bound", "called", "loaded"} <= outcomes
    console = Console(record=True, width=200)
    show(console, report)
    assert "load: FileError" in console.export_text()


@pytest.mark.thorough_cases(
    "hang-hangs in load",
    "crash-ends the process with status -6 in load",
    "an error without words-an error without words",
)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("crash", "ends the process with status -6 in load"),
        ("hang", "hangs in load"),
        ("memory", "ends the process with status 1 in load"),
        ("open", "touched open /etc/hostname"),
        ("an error without words", "an error without words"),
    ],
)
def test_what_is_wrong_is_seen_and_kept(tmp_path, what, words):
    report = run(Settings(8, tmp_path, workers=2, kernels_share=0, timeout_s=10, planted=f"5:{what}"))
    assert list(report.wrong) == [5]
    assert words in report.wrong[5]
    assert sum(report.outcomes.values()) == 8
    assert (tmp_path / "wrong" / "0-5.optdb").read_bytes() == mutant(corpus(tmp_path), 0, 5).content
    assert words in (tmp_path / "wrong" / "0-5.txt").read_text()


def test_mutants_follow_from_seed_and_number(tmp_path):
    originals = corpus(tmp_path)
    contents = [mutant(originals, 1, number).content for number in range(200)]
    assert contents == [mutant(originals, 1, number).content for number in range(200)]
    assert len(set(contents)) > 150
    for original in originals:
        path = tmp_path / "f.optdb"
        path.write_bytes(packed(original.manifest, original.members))
        assert list(load(path)) == list(original.arguments)


@pytest.mark.slow
def test_a_worker_that_does_not_start_is_told(tmp_path):
    with pytest.raises(RuntimeError, match=r"(?s)a worker failed to start.*no device has that name"):
        run(Settings(3, tmp_path, workers=1, device="no such device"))


def test_the_command_line(tmp_path):
    (tmp_path / "exports").mkdir()
    done = CliRunner().invoke(main, ["--help"])
    assert done.exit_code == 0
    assert "The exit status is 1" in done.output


#: A program that prints what a worker prints if it starts with mutant 0, or with a later mutant.
WORKER = """
import json, os, sys
first = int(sys.argv[1])
for number in range(first, 3):
    print(json.dumps({"number": number, "kind": "list"}), flush=True)
    if number == 0:
        print(json.dumps({"stage": "kernels"}), flush=True)
    if number == DIES and (first == 0 or ALONE):
        os.abort()
    print(json.dumps({"number": number, "outcome": "bound", "wrong": None, "seconds": 0}), flush=True)
print(json.dumps({"finished": True, "peak": 0}), flush=True)
"""


@pytest.mark.parametrize("alone", [False, True])
def test_a_process_that_kernels_have_damaged_says_nothing_of_later_mutants(tmp_path, monkeypatch, alone):
    code = f"DIES, ALONE = 2, {alone}\n{WORKER}"

    def start(settings, first, scratch):
        Path(scratch, "mutant").touch()
        return subprocess.Popen([sys.executable, "-c", code, str(first)], stdout=subprocess.PIPE, text=True)

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(runner, "_process", start)
    monkeypatch.setattr(runner, "_scratch", lambda settings: scratch)
    monkeypatch.setattr(runner, "_keep", lambda settings, report: None)
    report = run(Settings(mutants=3, folder=tmp_path, seed=0, workers=1, device="auto"))
    assert report.by_kernels == {0: "ends the process with status -6 later, in load of mutant 2"}
    assert report.wrong == ({2: "ends the process with status -6 in load"} if alone else {})
    assert sum(report.outcomes.values()) == 3
    assert not list(scratch.iterdir())

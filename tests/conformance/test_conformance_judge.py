"""The judge runs suite files, compares the results with a stored baseline, and reports a table."""

from __future__ import annotations

import sys
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from conformance.baseline import Baseline, settings_of
from conformance.compare import Verdict
from conformance.judge import Judge
from conformance.report import show
from conformance.suites import SUITES, Suite, choose, suites_root

# Tests whose outcome depends on a fake engine: some pass only without it, others only with it.
SOURCE = """
    import pathlib, pytest

    here = pathlib.Path(__file__)

    @pytest.fixture
    def way(request):
        with here.with_suffix(".runs").open("a") as runs:
            print(request.config.getoption("--way"), file=runs)
        return request.config.getoption("--way")

    def test_same(way): pass
    def test_worse(way): assert way == "stock", "the engine is on"
    def test_better(way): assert way != "stock"
    """


@pytest.fixture
def judge(settings, tmp_path):
    """Return a judge of the fake suite."""
    return Judge(settings, Baseline(settings, tmp_path / "baseline"), "topo", {})


def names(comparison, verdict):
    """Return the names of the tests that have the given verdict."""
    return [difference.result.id.split("::")[1] for difference in comparison.of(verdict)]


@pytest.mark.slow
def test_verdicts_and_report(judge, write):
    path = write("test_ways.py", SOURCE)
    [comparison] = judge.all([path], jobs=1)
    assert names(comparison, Verdict.REGRESSION) == ["test_worse"]
    assert names(comparison, Verdict.IMPROVEMENT) == ["test_better"]
    console = Console(file=StringIO(), width=100)
    show(console, {"fake": [comparison]}, "topo")
    text = console.file.getvalue()
    assert "regression test_ways.py::test_worse: failed" in text
    assert "AssertionError: the engine is on" in text


@pytest.mark.thorough
@pytest.mark.slow
def test_stock_runs_once(judge, settings, tmp_path, write):
    path = write("test_ways.py", SOURCE)
    judge = replace(judge, confirm=False, way="stock")
    runs = settings.root / "test_ways.runs"
    judge.one(path)
    assert len(runs.read_text().split()) == 6
    judge.one(path)
    assert len(runs.read_text().split()) == 9
    fresh = Baseline(settings, tmp_path / "baseline", fresh=True)
    assert len(fresh.results(path)) == 3
    assert len(runs.read_text().split()) == 12


@pytest.mark.thorough
def test_a_lean_judge_runs_stock_on_what_does_not_pass(judge, settings, write):
    path = write("test_ways.py", SOURCE)
    comparison = replace(judge, lean=True, confirm=False).one(path)
    assert names(comparison, Verdict.REGRESSION) == ["test_worse"]
    runs = (settings.root / "test_ways.runs").read_text().split()
    assert (runs.count("topo"), runs.count("stock")) == (3, 1)


@pytest.mark.thorough
@pytest.mark.slow
def test_long_files_come_first(judge, write):
    quick = write("test_quick.py", "def test_pass(): pass\n" + "#" * 1000)
    slow = write("test_slow.py", "def test_pass(): sum(range(10**7))\n")
    judge = replace(judge, way="stock")
    assert [comparison.path for comparison in judge.all([slow, quick], jobs=1)] == [quick, slow]
    assert [comparison.path for comparison in judge.all([quick, slow], jobs=1)] == [slow, quick]


@pytest.mark.thorough
@pytest.mark.slow
def test_selection_compares_what_was_run(judge, settings, write):
    path = write("test_ways.py", SOURCE)
    some = replace(judge, settings=replace(settings, select="same or worse"), way="stock")
    comparison = some.one(path)
    assert [name.split("::")[1] for name in comparison.stock] == ["test_same", "test_worse"]
    assert not comparison.of(Verdict.REGRESSION)


def test_choose(tmp_path):
    for name in ("test_a.py", "test_b.py", "test_c.py", "other.py"):
        (tmp_path / name).touch()
    suites = [Suite("one", "", ("test_[ab].py",), left_out=("test_b.py",)), Suite("two", "", ("test_[bc].py",))]
    assert choose([], suites, tmp_path) == {"test_a.py": "one", "test_b.py": "two", "test_c.py": "two"}
    assert choose(["one"], suites, tmp_path) == {"test_a.py": "one"}
    assert choose(["one", "test_c"], suites, tmp_path) == {"test_a.py": "one", "test_c.py": "two"}
    assert choose(["three"], suites, tmp_path) == {}


def test_every_pattern_finds_a_file_of_theanos():
    root = suites_root()
    missing = [pattern for suite in SUITES for pattern in suite.patterns if not list(root.glob(pattern))]
    assert missing == []


def test_another_interpreter_is_the_reference(settings):
    reference = settings_of(replace(settings, select="some"), sys.executable)
    assert (reference.python, reference.root, reference.select) == (sys.executable, suites_root(), "")


@pytest.mark.thorough
def test_suspects_of_stock_are_run_again_as_they_were(settings, tmp_path, write):
    """If stock Theano is judged, suspects are run again with the judge's flags, not with the reference's flags."""
    path = write(
        "test_flags.py", "def test_flags():\n    import theano\n    assert theano.config.floatX == 'float64'\n"
    )
    # The test imports Theano, which takes longer than the tests' usual limit.
    settings = replace(settings, timeout=60)
    baseline = Baseline(settings, tmp_path / "baseline")
    judge = Judge(replace(settings, flags=f"{settings.flags},floatX=float32"), baseline, "stock", {})
    assert names(judge.one(path), Verdict.REGRESSION) == ["test_flags"]


def test_an_interpreter_without_theano_is_no_reference(settings, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'No package called Theano' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(ValueError, match="cannot run the suites: No package called Theano"):
        settings_of(settings, str(broken))

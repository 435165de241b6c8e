"""Test results that differ between stock Theano and the engine: which differences count, and how they are reported."""

from __future__ import annotations

import pytest

from conformance.compare import BASELINE, Comparison, Verdict, compare
from conformance.records import CRASHED, FAILED, MISSING, PASSED, SKIPPED, TIMEOUT, Result


def results(**outcomes: str) -> dict[str, Result]:
    """Make results of a file `f.py` from the outcome of each test."""
    ids = {f"f.py::{name}": outcome for name, outcome in outcomes.items()}
    return {name: Result(name, name, outcome, error=outcome) for name, outcome in ids.items()}


def verdicts(comparison: Comparison) -> dict[str, Verdict]:
    """Map the name of each test that differs to its verdict."""
    return {difference.result.id.removeprefix("f.py::"): difference.verdict for difference in comparison.differences}


@pytest.mark.parametrize("outcome", [FAILED, CRASHED, TIMEOUT, SKIPPED])
def test_regression(outcome):
    comparison = compare("f.py", results(a=PASSED), results(a=outcome), {}, "topo")
    assert verdicts(comparison) == {"a": Verdict.REGRESSION}


@pytest.mark.parametrize("stock", [FAILED, SKIPPED, CRASHED])
def test_what_stock_does_not_pass_the_engine_need_not(stock):
    assert verdicts(compare("f.py", results(a=stock), results(a=FAILED), {}, "topo")) == {}


def test_improvement():
    comparison = compare("f.py", results(a=FAILED, b=SKIPPED), results(a=PASSED, b=PASSED), {}, "topo")
    assert verdicts(comparison) == {"a": Verdict.IMPROVEMENT}


def test_expected_differences():
    expected = {"f.py::a": "asserts a class name", "f.py::b": "asserts a phase", "f.py::c": "not run here"}
    comparison = compare("f.py", results(a=PASSED, b=PASSED), results(a=FAILED, b=PASSED), expected, "topo")
    assert verdicts(comparison) == {"a": Verdict.EXPECTED, "b": Verdict.SURPRISE}
    assert comparison.of(Verdict.EXPECTED)[0].reason == "asserts a class name"


def test_test_that_was_not_run_is_a_regression():
    comparison = compare("f.py", results(a=PASSED), {}, {}, "topo")
    assert verdicts(comparison) == {"a": Verdict.REGRESSION}
    assert comparison.differences[0].result.outcome == MISSING


def test_what_kept_a_test_from_running_is_its_error():
    broken = {"f.py": Result("f.py", "f.py", FAILED, error="ImportError")}
    comparison = compare("f.py", results(a=PASSED), broken, {}, "topo")
    assert comparison.of(Verdict.REGRESSION)[0].result.error == "ImportError"


@pytest.mark.parametrize(
    "engine_again, stock_again, verdict",
    [
        (FAILED, PASSED, Verdict.REGRESSION),
        (PASSED, PASSED, Verdict.UNSTEADY),
        (FAILED, FAILED, Verdict.UNSTEADY),
    ],
)
@pytest.mark.parametrize("again_is", ["f.py::a", "f.py"], ids=["alone", "with its file"])
def test_suspects_are_run_again(again_is, engine_again, stock_again, verdict):
    again = {"topo": engine_again, BASELINE: stock_again}
    ran = set()

    def run_again(what, way):
        ran.add(what)
        return results(a=again[way] if what == again_is else PASSED, b=PASSED)

    comparison = compare("f.py", results(a=PASSED, b=PASSED), results(a=FAILED, b=PASSED), {}, "topo", run_again)
    assert verdicts(comparison) == {"a": verdict}
    fails_alone = again_is == "f.py::a" and engine_again == FAILED
    assert ran == ({"f.py::a"} if fails_alone else {"f.py::a", "f.py"})


def test_cases_of_a_test_are_run_again_together():
    def cases(outcome):
        return {f"f.py::a#{n}": Result(f"f.py::a#{n}", "f.py::a", outcome) for n in range(3)}

    runs = []

    def run_alone(test, way):
        runs.append((test, way))
        return cases(PASSED if way == BASELINE else FAILED)

    comparison = compare("f.py", cases(PASSED), cases(FAILED), {}, "topo", run_alone)
    assert len(comparison.of(Verdict.REGRESSION)) == 3
    assert runs == [("f.py::a", "topo"), ("f.py::a", BASELINE)]

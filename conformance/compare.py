"""Compares the results of a way (see `WAYS`) with those of stock, test by test, and runs every suspect again.

A test is a regression only if it passes with stock and fails with the engine twice: first in its file, and then either
alone or again with its file. A suspect runs again because leftovers of other tests may have caused the first failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from conformance.records import MISSING, PASSED, SKIPPED, Result

BASELINE = "baseline"
"""Stands for stock where a test is run again: `stock` is a way, too, which may be run by another interpreter."""

RunAlone = Callable[[str, str], Mapping[str, Result]]


class Verdict(Enum):
    """The kinds of differences between the results of stock and of the engine."""

    REGRESSION = "regression"
    EXPECTED = "expected difference"
    SURPRISE = "expected difference, but passes: remove its line from expected.py"
    UNSTEADY = "unsteady"
    IMPROVEMENT = "improvement"


@dataclass(frozen=True)
class Difference:
    """A test whose results differ; `reason` says why this is expected, or why the test counts as unsteady."""

    verdict: Verdict
    result: Result
    reason: str = ""


@dataclass
class Comparison:
    """The results of one suite file with stock and with the engine."""

    path: str
    stock: Mapping[str, Result]
    engine: Mapping[str, Result]
    differences: list[Difference] = field(default_factory=list)

    def of(self, verdict: Verdict) -> list[Difference]:
        """Return the differences with a given verdict."""
        return [difference for difference in self.differences if difference.verdict is verdict]


def compare(
    path: str,
    stock: Mapping[str, Result],
    engine: Mapping[str, Result],
    expected: Mapping[str, str],
    way: str,
    run_alone: RunAlone | None = None,
) -> Comparison:
    """Compare a suite file's results with those of stock; a test that only ran in one case is missing in the other.

    `expected` maps ids of tests that may fail with the engine to reasons. ``run_alone(test, way)`` runs one test or one
    file in a separate process. For the way `BASELINE`, it runs the test or file like the results `stock`. Without
    `run_alone`, every suspect is a regression.
    """
    second_run = _SecondRun(run_alone) if run_alone else None
    comparison = Comparison(path, stock, engine)
    for before, after in _pairs(stock, engine):
        if after.outcome == PASSED:
            if after.id in expected:
                comparison.differences.append(Difference(Verdict.SURPRISE, after, expected[after.id]))
            elif before.outcome not in (PASSED, SKIPPED):
                comparison.differences.append(Difference(Verdict.IMPROVEMENT, after))
        elif before.outcome == PASSED:
            comparison.differences.append(_judge(after, expected, way, second_run))
    return comparison


class _SecondRun:
    """Runs the test of a suspect again, alone or with its whole file. For each way, a test or file is only run once."""

    def __init__(self, run_alone: RunAlone) -> None:
        self._run_alone = run_alone
        self._done: dict[tuple[str, str], Mapping[str, Result]] = {}

    def __call__(self, suspect: Result, what: str, way: str) -> Result:
        """Run `what`, which is the suspect's test or file, and return the suspect's result."""
        if (what, way) not in self._done:
            self._done[what, way] = self._run_alone(what, way)
        return self._done[what, way].get(suspect.id) or _stand_in(suspect, self._done[what, way])


def _judge(after: Result, expected: Mapping[str, str], way: str, second_run: _SecondRun | None) -> Difference:
    """Judge a test that passes with stock, but does not pass with the engine."""
    if after.id in expected:
        return Difference(Verdict.EXPECTED, after, expected[after.id])
    if second_run is None:
        return Difference(Verdict.REGRESSION, after)
    for what, how in ((after.test, "alone"), (after.test.split("::")[0], "with its file")):
        again = second_run(after, what, way)
        if again.outcome == PASSED:
            continue
        stock = second_run(after, what, BASELINE)
        if stock.outcome != PASSED:
            return Difference(Verdict.UNSTEADY, after, f"{stock.outcome} under stock as well when run {how}")
        return Difference(Verdict.REGRESSION, again)
    return Difference(
        Verdict.UNSTEADY, after, f"{after.outcome} once, but passes when run again, alone and with its file"
    )


def _pairs(stock: Mapping[str, Result], engine: Mapping[str, Result]) -> Iterable[tuple[Result, Result]]:
    for name in [*stock, *(name for name in engine if name not in stock)]:
        known = stock.get(name) or engine[name]
        yield stock.get(name) or _stand_in(known, stock), engine.get(name) or _stand_in(known, engine)


def _stand_in(known: Result, results: Mapping[str, Result]) -> Result:
    """Return a result for a test that was not run: the failure of the class or module that prevented the test."""
    parts = known.test.split("::")
    for length in range(len(parts), 0, -1):
        cause = results.get("::".join(parts[:length]))
        if cause is not None and cause.outcome not in (PASSED, SKIPPED):
            return replace(cause, id=known.id, test=known.test)
    return Result(known.id, known.test, MISSING, error="the test was not run")

"""Implements the marks for slow tests: `slow_cases`, `thorough`, `thorough_cases` and `pairwise`.

``@pytest.mark.slow_cases("cpu-float64")`` gives the case ``test_name[cpu-float64]`` the mark `slow`. Use it
for ids that come from several parameters or from a fixture; a value of a single parameter can also be marked with
``pytest.param``.

`thorough` is for tests that take several seconds and that only add depth to other tests: they test another model, for
example, or details of a command for developers. Quick runs omit these tests. ``thorough_cases`` names cases, as
``slow_cases`` does.

`pairwise` is for tests of all combinations of the values of three or more parameters. Quick runs omit every second
case, so that each value of a parameter still occurs with each value of each other parameter.

Quick runs also omit the cases in ``repeated_cases.txt``, which `tests.repeats` writes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.effort import is_quick

#: The marks that name cases, and the mark that each of them sets.
_MARKS = {"slow_cases": "slow", "thorough_cases": "thorough"}
#: Lists the cases that execute only what other tests execute: each test is followed by the indented ids of such cases.
REPEATED = Path(__file__).with_name("repeated_cases.txt")
#: The environment variable that makes `tests.repeats` record tests; no repeated case is then omitted.
RECORDS = "OPTDB_TEST_RECORDS"
#: The key of a test item's error message about its marks.
_WRONG = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases before `-m` selects tests by their marks, and omit thorough tests from quick runs."""
    whole_files = _collects_whole_files(config)
    for by_cases, meaning in _MARKS.items():
        for cases in _tests_with(by_cases, items):
            missing = _mark(cases, by_cases, meaning)
            if missing and whole_files:
                for item in cases:
                    item.stash[_WRONG] = f"{missing} are no cases of this test: correct its mark {by_cases}"
    if whole_files:
        for cases in _tests_with("pairwise", items):
            _mark_odd(cases)
    if is_quick():
        if RECORDS not in os.environ:
            _mark_repeated(items)
        kinds: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            kinds[item.get_closest_marker("thorough") is not None].append(item)
        items[:] = kinds[False]
        config.hook.pytest_deselected(items=kinds[True])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose mark names a case that does not exist: otherwise a renamed case would lose its mark."""
    wrong = item.stash.get(_WRONG, None)
    if wrong is not None:
        pytest.fail(wrong, pytrace=False)


def repeated_cases() -> dict[str, set[str]]:
    """Return, for each test, the cases that execute nothing that other tests do not execute."""
    found: dict[str, set[str]] = {}
    cases: set[str] = set()
    for line in REPEATED.read_text().splitlines():
        if line.startswith("    "):
            cases.add(line[4:])
        elif not line.startswith("#"):
            cases = found.setdefault(line, set())
    return found


def _mark_repeated(items: Iterable[pytest.Item]) -> None:
    repeated = repeated_cases()
    for item in items:
        test, _, case = item.nodeid.partition("[")
        if case.removesuffix("]") in repeated.get(test, ()):
            item.add_marker("thorough")


def _tests_with(mark: str, items: Iterable[pytest.Item]) -> Iterable[list[pytest.Item]]:
    """Return the cases of each test that has a mark."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker(mark):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return tests.values()


def _mark(cases: Iterable[pytest.Item], by_cases: str, meaning: str) -> list[str]:
    """Apply a mark such as `slow_cases` of a test to the cases that it names; return the names that match no case."""
    missing: set[str] = set()
    found: set[str] = set()
    for item in cases:
        case = item.nodeid.partition("[")[2].removesuffix("]")
        for mark in item.iter_markers(by_cases):
            missing.update(mark.args)
            if case in mark.args:
                found.add(case)
                item.add_marker(meaning)
    return sorted(missing - found)


def _mark_odd(cases: Sequence[pytest.Item]) -> None:
    """Number each parameter's values, and mark the cases whose numbers have an odd sum as thorough."""
    columns = _columns(cases)
    odd = [case for place, case in enumerate(cases) if sum(column[place] for column in columns) % 2]
    for item in odd:
        item.add_marker("thorough")
    if _pairs(cases) - _pairs([case for case in cases if case not in odd]):
        for item in cases:
            item.stash[_WRONG] = "half of its cases lack pairs of values: remove its mark pairwise"


def _columns(cases: Sequence[pytest.Item]) -> list[tuple[int, ...]]:
    """Return, for each parameter, the numbers of its values in all cases; combine parameters that change together."""
    columns = set()
    for name in cases[0].callspec.params:
        numbers: dict[int, int] = {}
        # The value of a parameter is the same object in all cases of a test.
        values = [id(case.callspec.params[name]) for case in cases]
        columns.add(tuple(numbers.setdefault(value, len(numbers)) for value in values))
    return list(columns)


def _pairs(cases: Iterable[pytest.Item]) -> set[tuple[str, int, str, int]]:
    """Return the pairs of values of two parameters in the cases of a test."""
    pairs = set()
    for case in cases:
        values = [(name, id(value)) for name, value in case.callspec.params.items()]
        pairs.update((*one, *other) for one, other in itertools.combinations(values, 2))
    return pairs


def _collects_whole_files(config: pytest.Config) -> bool:
    """Return whether all cases of a test are collected, instead of single cases or the cases that failed last."""
    paths = config.getoption("file_or_dir")
    return not any("::" in path for path in paths) and not config.getoption("lf", False)

"""The marks for slow tests: `slow_cases`, `thorough` and `thorough_cases`.

``@pytest.mark.slow_cases("cpu-float64")`` gives the case ``test_name[cpu-float64]`` the mark `slow`. It is for ids of
several parameters or of a fixture; a value of a single parameter can also be marked itself, with ``pytest.param``.

`thorough` is for tests that take several seconds and repeat what others test in more depth, such as another model. They
are omitted if tests run only a fraction of their examples. ``thorough_cases`` names cases, like ``slow_cases``.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.effort import is_quick

#: The marks that name cases, and the mark that each of them sets.
_MARKS = {"slow_cases": "slow", "thorough_cases": "thorough"}
#: The error in the marks of an item.
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
    if is_quick():
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


def _tests_with(mark: str, items: Iterable[pytest.Item]) -> Iterable[list[pytest.Item]]:
    """Return the cases of each test with a mark."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker(mark):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return tests.values()


def _mark(cases: Iterable[pytest.Item], by_cases: str, meaning: str) -> list[str]:
    """Mark the cases of a test that a mark names; return the ids that match no case."""
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


def _collects_whole_files(config: pytest.Config) -> bool:
    """Return whether all cases of a test are collected, instead of single cases or the cases that failed last."""
    paths = config.getoption("file_or_dir")
    return not any("::" in path for path in paths) and not config.getoption("lf", False)

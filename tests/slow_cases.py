"""The mark `slow_cases`: of a test with parameters, the cases that take long, by their ids.

``@pytest.mark.slow_cases("cpu-float64")`` gives the case ``test_name[cpu-float64]`` the mark `slow`. It is for ids that
several parameters or a fixture make up; a value of a single parameter can also be marked itself, by ``pytest.param``.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

#: Of each item, the ids in its mark that no case of its test has.
_MISSING = pytest.StashKey[list[str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the cases, before `-m` selects tests by their marks."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow_cases"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    whole_files = _collects_whole_files(config)
    for cases in tests.values():
        missing = _mark(cases)
        if whole_files:
            for item in cases:
                item.stash[_MISSING] = missing


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose mark names a case that there is not: another one would be slow without the mark."""
    missing = item.stash.get(_MISSING, [])
    if missing:
        pytest.fail(f"{missing} are no cases of this test: correct its mark slow_cases", pytrace=False)


def _mark(cases: Iterable[pytest.Item]) -> list[str]:
    """Mark those cases of a test that are slow, and return the ids that no case has."""
    missing: set[str] = set()
    found: set[str] = set()
    for item in cases:
        case = item.nodeid.partition("[")[2].removesuffix("]")
        for mark in item.iter_markers("slow_cases"):
            missing.update(mark.args)
            if case in mark.args:
                found.add(case)
                item.add_marker(pytest.mark.slow)
    return sorted(missing - found)


def _collects_whole_files(config: pytest.Config) -> bool:
    """Return whether all cases of a test are collected: neither single ones nor those that failed last."""
    paths = config.getoption("file_or_dir")
    return not any("::" in path for path in paths) and not config.getoption("lf", False)

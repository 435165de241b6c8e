"""A pytest plugin: enables a way, seeds each test, and records its results.

It runs inside the process of one suite file (``-p conformance.plugin``). `runner` starts that process and reads the
lines that `Recorder` writes.
"""

from __future__ import annotations

import os
import random
import resource
from copy import copy
from pathlib import Path
from time import process_time
from typing import TextIO

import numpy as np
import pytest

from conformance.cpu_limit import MESSAGE
from conformance.records import FAILED, PASSED, SKIPPED, TIMEOUT, LogWriter, Result
from conformance.ways import WAYS

ERROR_CHARS = 3000
SEED = 666
PARENT = os.getppid()
# A graph that grows without bound has to fail its test instead of exhausting the machine's memory.
MEMORY_BYTES = 6 << 30


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options that `runner` passes."""
    group = parser.getgroup("conformance")
    group.addoption("--way", choices=sorted(WAYS), help="features that are enabled before the suite is imported")
    group.addoption("--log-to", type=Path, help="file that gets a JSON line per event")
    group.addoption("--leave-out", type=Path, help="file with the ids of tests to skip, one per line")


def pytest_configure(config: pytest.Config) -> None:
    """Enable the way before any test module is imported."""
    _seed()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    WAYS[config.getoption("--way")].switch_on()
    stream = config.getoption("--log-to").open("w")
    config.add_cleanup(stream.close)
    config.pluginmanager.register(Recorder(stream), "conformance-recorder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that an earlier, crashed process has already run."""
    path = config.getoption("--leave-out")
    if path is None:
        return
    done = set(path.read_text().splitlines())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
    items[:] = [item for item in items if item.nodeid not in done]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Give each test the same random numbers in both ways, whatever the order of tests, and even if it runs alone."""
    if os.getppid() != PARENT:
        pytest.exit("the parent process has ended")
    _seed()


def _seed() -> None:
    random.seed(SEED)
    np.random.seed(SEED)


class Recorder:
    """Write down the start, the results and the end of each test.

    A test's result is the worst of its set-up, call and tear-down. Subtests (unittest's, pytest's, and the cases of a
    yield test) have their own results, named ``test#case``; a test with cases has no other result, unless it failed
    outside of them. Times are the process's CPU seconds, since wall time depends on other programs.
    """

    def __init__(self, stream: TextIO) -> None:
        self._log = LogWriter(stream)
        self._reports: list[pytest.TestReport] = []
        self._cases = 0
        self._clock = 0.0

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a module or class that could not be collected as one failed test."""
        if report.failed:
            self._log.result(Result(report.nodeid, report.nodeid, FAILED, error=_error(report)))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Record which test is running, in case the process dies."""
        self._reports.clear()
        self._cases = 0
        self._clock = process_time()
        self._log.start(nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a case, or keep a phase of the test until its end."""
        if not isinstance(report, pytest.SubtestReport):
            # A copy, because pytest's own hooks mark a test as failed if its cases failed.
            self._reports.append(copy(report))
            return
        name = report.context.msg or ",".join(f"{k}={v}" for k, v in report.context.kwargs.items()) or self._cases
        self._cases += 1
        self._log.result(self._result([report], f"{report.nodeid}#{name}"))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Record the test."""
        result = self._result(self._reports, nodeid)
        if not self._cases or result.outcome != PASSED:
            self._log.result(result)
        self._log.end(nodeid)

    def pytest_sessionfinish(self) -> None:
        """Record that nothing is left to run."""
        self._log.finish()

    def _result(self, reports: list[pytest.TestReport], name: str) -> Result:
        before, self._clock = self._clock, process_time()
        seconds = self._clock - before
        bad = next((report for report in reports if report.failed), None)
        if bad is not None:
            error = _error(bad)
            return Result(name, bad.nodeid, TIMEOUT if MESSAGE in error else FAILED, seconds, error)
        skipped = any(report.skipped for report in reports)
        return Result(name, reports[0].nodeid, SKIPPED if skipped else PASSED, seconds)


def _error(report: pytest.TestReport | pytest.CollectReport) -> str:
    return report.longreprtext[-ERROR_CHARS:]

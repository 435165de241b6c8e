"""A pytest plugin that enables a way (see `WAYS`), seeds each test, limits its CPU time, and records its results.

The plugin is loaded in the process that runs a suite file (``-p conformance.plugin``). It also runs tests of Theano
that are written for nose and that pytest no longer supports, namely yield tests and plain classes with a ``setUp``.
"""

from __future__ import annotations

import inspect
import os
import random
import resource
import signal
import unittest
from collections.abc import Generator
from copy import copy
from pathlib import Path
from time import process_time
from types import FrameType, MethodType
from typing import TextIO

import numpy as np
import pytest

from conformance.records import FAILED, PASSED, SKIPPED, TIMEOUT, LogWriter, Result
from conformance.ways import WAYS

ERROR_CHARS = 3000
SEED = 666
PARENT = os.getppid()
# If a graph grows without bound, the test has to fail before the machine's memory is exhausted.
MEMORY_BYTES = 6 << 30
#: The error message if a test uses too many CPU seconds. Wall seconds are not limited, because they depend on how busy
#: the machine is.
TIMEOUT_MESSAGE = "Timeout: the test used more CPU seconds than"
#: Seconds after which the exception that ends a test is raised again, because some of Theano's code swallows any
#: exception.
TIMEOUT_REPEAT_S = 1.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options that `runner` passes."""
    group = parser.getgroup("conformance")
    group.addoption("--way", choices=sorted(WAYS), help="features that are enabled before the suite is imported")
    group.addoption("--log-to", type=Path, help="file that gets a JSON line per event")
    group.addoption("--leave-out", type=Path, help="file with the ids of tests to skip, one per line")
    group.addoption("--cpu-limit", type=float, help="timeout of a test, in CPU seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Enable the way before any test module is imported; make a test fail when its limit of CPU time is over."""

    def end_test(signum: int, frame: FrameType | None) -> None:
        pytest.fail(f"{TIMEOUT_MESSAGE} {config.getoption('--cpu-limit')}")

    signal.signal(signal.SIGPROF, end_test)
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
    """Seed random numbers, so that a test draws the same numbers with stock and engine, in any order and alone."""
    if os.getppid() != PARENT:
        pytest.exit("the parent process has ended")
    _seed()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Limit the CPU time of the test itself, but not of its set-up."""
    _start_clock(item.config)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _start_clock(config: pytest.Config) -> None:
    """Start the clock that limits CPU time; restart it for each case of a test, because each has the full limit."""
    signal.setitimer(signal.ITIMER_PROF, config.getoption("--cpu-limit"), TIMEOUT_REPEAT_S)


def _seed() -> None:
    random.seed(SEED)
    np.random.seed(SEED)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> list[pytest.Item] | None:
    """Collect a generator function (a yield test) as one item; leave everything else to pytest.

    The generator yields cases, which are functions or ``(function, *arguments)`` tuples. As in nose, each case runs
    between two steps of the generator, because some cases read a variable of the generator's loop. Cases are run as
    subtests.
    """
    if not (collector.istestfunction(obj, name) and inspect.isgeneratorfunction(obj)):
        return None

    def run_cases(owner: object, subtests: pytest.Subtests) -> None:
        for index, step in enumerate(getattr(owner, name)()):
            case, *arguments = step if isinstance(step, tuple) else (step,)
            _start_clock(collector.config)
            with subtests.test(msg=str(index)):
                case(*arguments)

    owner = collector.newinstance() if isinstance(collector, pytest.Class) else collector.obj
    return [pytest.Function.from_parent(collector, name=name, callobj=MethodType(run_cases, owner))]


@pytest.fixture(autouse=True)
def _set_up(request: pytest.FixtureRequest) -> None:
    """Call the ``setUp`` of a plain class before each of its tests."""
    instance = request.instance
    if hasattr(instance, "setUp") and not isinstance(instance, unittest.TestCase):
        instance.setUp()


class Recorder:
    """Records the start, the results and the end of each test.

    The result of a test is the worst of the results of its set-up, its call and its tear-down. Subtests (those of
    unittest and of pytest, and the cases of a yield test) have separate results, named ``test#case``. A test with cases
    only has another result if it failed outside of the cases. Times are CPU seconds of the process, because wall time
    depends on other programs.
    """

    def __init__(self, stream: TextIO) -> None:
        self._log = LogWriter(stream)
        self._reports: list[pytest.TestReport] = []
        self._cases = 0
        self._clock = 0.0

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """If a module or class could not be collected, record a failed test for it."""
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
        """Record the result of a case; keep the result of a phase of the test until the test ends."""
        if not isinstance(report, pytest.SubtestReport):
            # Copy the report, because pytest's own hooks mark it as failed if cases of the test failed.
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
            return Result(name, bad.nodeid, TIMEOUT if TIMEOUT_MESSAGE in error else FAILED, seconds, error)
        skipped = any(report.skipped for report in reports)
        return Result(name, reports[0].nodeid, SKIPPED if skipped else PASSED, seconds)


def _error(report: pytest.TestReport | pytest.CollectReport) -> str:
    return report.longreprtext[-ERROR_CHARS:]

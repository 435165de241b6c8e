"""A pytest plugin: ends a test that uses too many CPU seconds.

CPU seconds are used instead of wall seconds, so that a test does not fail only because the machine is busy. A test that
uses no CPU time, or does not return from C code, is ended from outside (see `runner`).
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from types import FrameType

import pytest

MESSAGE = "Timeout: the test used more CPU seconds than"
REPEAT_SECONDS = 1.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option that `runner` passes."""
    parser.getgroup("conformance").addoption("--cpu-limit", type=float, help="timeout of a test, in CPU seconds")


def pytest_configure(config: pytest.Config) -> None:
    """Make the signal of the process's CPU clock end the running test."""

    def end_test(signum: int, frame: FrameType | None) -> None:
        pytest.fail(f"{MESSAGE} {config.getoption('--cpu-limit')}")

    signal.signal(signal.SIGPROF, end_test)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Limit the test itself, without its set-up."""
    start(item.config)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def start(config: pytest.Config) -> None:
    """Start the clock, or restart it: a test with many cases has the limit for each."""
    # The signal is repeated, because some of Theano's code swallows any exception.
    signal.setitimer(signal.ITIMER_PROF, config.getoption("--cpu-limit"), REPEAT_SECONDS)

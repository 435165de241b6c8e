"""A pytest plugin: ends a test that uses too many CPU seconds.

CPU seconds and not those on the wall, because a test must not fail on a busy machine that passes on an idle one. What
uses none of them, or does not come back from C code, is ended from outside (see `runner`).
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
    parser.getgroup("conformance").addoption("--cpu-limit", type=float, help="CPU seconds that a test may use")


def pytest_configure(config: pytest.Config) -> None:
    """Have the signal of the process's CPU clock end the test that runs."""

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
    """Start the clock, again if it runs: a test of many cases has the limit for each."""
    # It repeats, because some code of Theano swallows any exception.
    signal.setitimer(signal.ITIMER_PROF, config.getoption("--cpu-limit"), REPEAT_SECONDS)

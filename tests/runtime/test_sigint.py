"""From a call's commit point on, SIGINT is deferred until the outermost call returns."""

from __future__ import annotations

import gc
import signal

import pytest

from optdb.runtime.sigint import commit_point, defer_sigint, repeat_without_sigint, without_sigint
from tests.interrupts import ctrl_c_interrupts, interrupt_at, press_ctrl_c  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("ctrl_c_interrupts")


def test_interrupts_are_deferred_only_from_the_commit_point_on():
    done = []

    def call(begin):
        begin()
        press_ctrl_c()
        done.append("inner")

    def outer():
        commit_point()
        defer_sigint(call, commit_point)
        done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        defer_sigint(call, lambda: None)
    assert not done
    with pytest.raises(KeyboardInterrupt):
        defer_sigint(outer)
    assert done == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_interrupts_that_are_ignored_still_are():
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        without_sigint(press_ctrl_c)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, usual)


def test_repeated_calls_are_whole_and_an_interrupt_waits_for_one():
    done = []

    def call():
        done.append("begun")
        if len(done) == 5:
            press_ctrl_c()
        done.append("ended")

    with pytest.raises(KeyboardInterrupt):
        repeat_without_sigint(call, 10)
    assert done == ["begun", "ended"] * 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    seen: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda number, frame: seen.append(len(done)))
    try:
        del done[:]
        repeat_without_sigint(call, 10)
        assert len(done) == 20 and seen == [6]
        del done[:]
        without_sigint(repeat_without_sigint, call, 10)
        assert len(done) == 20 and seen == [6, 20]
    finally:
        signal.signal(signal.SIGINT, usual)


@pytest.fixture
def no_collection():
    """Disable garbage collections, because Python prints an interrupt in a finalizer instead of raising it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_an_interrupt_at_any_event_is_raised_once_and_later_ones_are_deferred(no_collection):
    stored = [0, 0]

    def store():
        stored[0] += 1
        stored[1] += 1

    def call():
        len(stored)
        commit_point()
        store()
        len(stored)

    number, caught = 0, []
    while True:
        # The traceback of the error keeps all frames alive.
        is_over, error = interrupt_at(number, defer_sigint, call)
        caught.append(error)
        assert stored[0] == stored[1]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if is_over:
            break
        assert isinstance(error, KeyboardInterrupt)
        number += 1
    assert number > 20

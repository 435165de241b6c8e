"""SIGINT waits from the commit point on, until the outermost block exits."""

from __future__ import annotations

import signal

import pytest

from optdb.runtime.sigint import commit_point, defer_sigint
from tests.interrupts import ctrl_c_interrupts, press_ctrl_c  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("ctrl_c_interrupts")


def test_interrupts_are_held_back_only_from_the_beginning_of_the_end():
    done = []
    with pytest.raises(KeyboardInterrupt), defer_sigint():
        press_ctrl_c()
        done.append("never")
    with pytest.raises(KeyboardInterrupt), defer_sigint():
        commit_point()
        with defer_sigint():
            commit_point()
            press_ctrl_c()
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_ignores_interrupts_still_does():
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with defer_sigint():
            commit_point()
            press_ctrl_c()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, usual)

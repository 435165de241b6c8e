"""What tests of SIGINT share."""

from __future__ import annotations

import os
import signal

import pytest


@pytest.fixture
def ctrl_c_interrupts():
    """Let SIGINT be what it is in a program of its own: a process that runs tests for another one ignores it."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)

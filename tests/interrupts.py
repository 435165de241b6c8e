"""Helpers for tests of SIGINT."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from fuzzing.interrupts import interrupt_at as interrupted_block


@pytest.fixture
def ctrl_c_interrupts():
    """Restore the usual effect of SIGINT, which a process ignores if it runs tests for another process."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def interrupt_at(number, call, *args):
    """Call a function, and press Ctrl-C at place `number`, counted from 0, at which Python checks for signals.

    A place is the beginning or the return of a function. The beginning of a C function does not count, because Python
    checks for signals only after it has returned. Return whether the call ended before it reached this place, and the
    error that the call raised (None if it raised none).
    """
    left, error = number, None

    def at(_frame, event, called):
        nonlocal left
        left -= event in ("call", "return", "c_return") and called is not sys.setprofile
        if left < 0:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    sys.setprofile(at)
    try:
        call(*args)
    except BaseException as caught:
        error = caught
    finally:
        sys.setprofile(None)
    return left >= 0, error


def is_free(lock):
    """Tell whether another thread can take a lock."""

    def take():
        taken = lock.acquire(blocking=False)
        if taken:
            lock.release()
        return taken

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(take).result()


def interrupted_everywhere(call):
    """Call a function repeatedly, each time interrupted at a later Python event; yield after each call."""
    for event in range(1, 1000):
        with contextlib.suppress(KeyboardInterrupt), interrupted_block(event) as is_interrupted:
            call()
        yield
        if not is_interrupted():
            return
    raise AssertionError("the call has no end")

"""Background work yields to other threads; a process that ends waits for running work, and starts no new work."""

from __future__ import annotations

import threading

import pytest

from optdb.runtime import background
from optdb.runtime.background import in_background, unhurried
from tests.processes import output


def test_it_runs_in_another_thread():
    assert in_background(threading.current_thread, "some-name").result(60).name.startswith("some-name")


def test_a_process_that_ends_waits_and_begins_no_more():
    code = """
import atexit, time
from optdb.runtime.background import in_background
atexit.register(lambda: print(in_background(print, "late")))
in_background(lambda: (time.sleep(0.2), print("done")), "slow")
print("end")
"""
    assert output(code).split() == ["end", "done", "None"]


def test_it_gives_way_when_it_has_worked_for_a_while(monkeypatch):
    pauses = []
    now = iter(range(1000))
    monkeypatch.setattr(background.time, "perf_counter", lambda: next(now) * background._WORK_S * 0.4)
    monkeypatch.setattr(background.time, "sleep", pauses.append)
    assert in_background(lambda: list(unhurried("abcdefgh")), "unhurried").result(60) == list("abcdefgh")
    assert pauses == [background._PAUSE_S] * 2


def test_other_threads_do_not_give_way(monkeypatch):
    monkeypatch.setattr(background.time, "sleep", lambda _: pytest.fail("it paused"))
    monkeypatch.setattr(background, "_WORK_S", -1.0)
    assert list(unhurried("abc")) == list("abc")

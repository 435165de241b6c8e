"""Work in the background: a process that ends waits for it, and begins no more of it."""

from __future__ import annotations

import threading

from optdb.runtime.background import in_background
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

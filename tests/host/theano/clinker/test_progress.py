"""Users who wait for compilers see progress messages."""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import rich.console

from optdb.host.theano.clinker import progress as module
from optdb.host.theano.clinker.progress import CompileProgress


@pytest.fixture
def progress(monkeypatch):
    monkeypatch.setattr(module, "DELAY_S", 0.05)
    return CompileProgress()


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    terminal = Terminal()
    # pytest replaces `sys.stderr` after the fixtures have run, so replace `sys` in the modules that use it.
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=terminal))
    monkeypatch.setattr(rich.console, "sys", SimpleNamespace(**{**vars(sys), "stderr": terminal}))
    return terminal


def wait_for(condition):
    for _ in range(500):
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("it did not come")


def test_what_takes_long_is_shown_on_a_terminal(progress, terminal):
    with progress.phase("optimizing"):
        wait_for(lambda: "optimizing" in terminal.getvalue())
        with progress.phase("compiling"):
            progress.count(12, 40)
            wait_for(lambda: "compiling" in terminal.getvalue() and "12/40" in terminal.getvalue())
    assert progress._bar is None


def test_what_is_quick_is_not_shown(progress, terminal, monkeypatch):
    monkeypatch.setattr(module, "DELAY_S", 60.0)
    with progress.phase("optimizing"), progress.phase("compiling"):
        progress.count(1, 2)
    assert terminal.getvalue() == ""
    assert progress._timer is None


def test_lines_are_logged_where_there_is_no_terminal(progress, monkeypatch, caplog):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with caplog.at_level(logging.INFO, "optdb.progress"), progress.phase("compiling"):
        time.sleep(0.1)
        progress.count(12, 40)
        progress.count(13, 40)
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        "theano.function: compiling 12 of 40"
    ]


def test_another_thread_that_compiles_is_not_shown(progress, terminal):
    with progress.phase("optimizing"):
        thread = threading.Thread(target=lambda: progress.phase("linking").__enter__())
        thread.start()
        thread.join()
        assert progress._phases == ["optimizing"]


def test_an_error_ends_it(progress, terminal):
    with pytest.raises(ValueError, match="x"), progress.phase("optimizing"):
        time.sleep(0.1)
        raise ValueError("x")
    assert progress._phases == []
    with progress.phase("optimizing"):
        assert progress._phases == ["optimizing"]

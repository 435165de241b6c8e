"""optdb changes some of Theano's flags temporarily."""

from __future__ import annotations

import threading

import theano

from optdb.host.api.config import as_when_compiling


def test_concurrent_uses_put_back_what_the_first_has_found(monkeypatch):
    monkeypatch.setattr(theano.config.traceback, "limit", 7)
    monkeypatch.setattr(theano.config.traceback, "compile_limit", 0)
    entered, leave = threading.Event(), threading.Event()

    def other():
        with as_when_compiling():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with as_when_compiling():
        thread.start()
        entered.wait()
        assert theano.config.traceback.limit == 0
    assert theano.config.traceback.limit == 0
    leave.set()
    thread.join()
    assert theano.config.traceback.limit == 7

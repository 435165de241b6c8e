"""Theano's configuration object, in which the optdb.* flags live too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from theano import config

__all__ = ["as_when_compiling", "config"]

_lock = threading.Lock()
_holders = 0
_usual_limit = 0


@contextmanager
def as_when_compiling() -> Iterator[None]:
    """Let variables not remember where they are made, as while a function is compiled: they get the user's traces.

    Nested and concurrent uses are counted: threads that put back what each has found would leave the limit of another.
    """
    global _holders, _usual_limit
    with _lock:
        if _holders == 0:
            _usual_limit = config.traceback.limit
            config.traceback.limit = config.traceback.compile_limit
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0:
                config.traceback.limit = _usual_limit

"""Python's cyclic collector, kept from walking a graph that only grows.

While a graph is rewritten, every new node is reachable and stays so: each
collection walks all of it and frees next to nothing.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_holders = 0
_was_enabled = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep automatic collection off while any thread is inside.

    Nested and concurrent uses are counted; the last one out puts the
    collector back as the first one found it.
    """
    global _holders, _was_enabled
    with _lock:
        if _holders == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0 and _was_enabled:
                gc.enable()

"""Python's cyclic collector, kept from walking a graph that only grows.

While a graph is rewritten, every new node is reachable and stays so: each
collection walks all of it and frees next to nothing.
"""

from __future__ import annotations

import gc
from contextlib import AbstractContextManager

from optdb.host.refcounting import RefCountedSetting


def collector_paused() -> AbstractContextManager[None]:
    """Keep automatic collection off while any thread is inside.

    The last one out puts the collector back as the first one found it.
    """
    return _collection.held()


def _turn_off() -> bool:
    was_enabled = gc.isenabled()
    gc.disable()
    return was_enabled


def _put_back(was_enabled: bool) -> None:
    if was_enabled:
        gc.enable()


_collection = RefCountedSetting(_turn_off, _put_back)

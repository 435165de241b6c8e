"""Pauses Python's cyclic collector while a graph only grows.

While a graph is rewritten, every new node is reachable and stays reachable. A
collection walks the whole graph, and frees almost nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from optdb.refcounting import RefCountedSetting

#: The number of promoted objects that triggers a full collection: about 50 MB if all are garbage.
MOST_PROMOTED = 300_000
#: After a check has found frozen objects, skip this many checks, because Python counts all frozen objects in each
#: check.
UNASKED = 100


def collector_paused() -> AbstractContextManager[None]:
    """Keep automatic collection off while any thread is inside the `with` block.

    The last thread to leave restores the state that the collector had before the first thread entered.
    """
    return _collection.held()


@contextmanager
def growing() -> Iterator[None]:
    """Keep automatic collection off, and promote the young objects to the oldest generation at the end.

    A compiled function keeps its graph and its thunks alive. If these objects stayed young, the next collection would
    walk all of them, which takes a tenth as long as optimizing the graph.
    """
    with collector_paused():
        _promotion.is_due = True
        yield


class _Promotion:
    """Moves young objects to the oldest generation.

    Python counts the objects that its own collections promote, and runs a full collection when their number reaches a
    threshold. Python does not count the objects that this class promotes, so this class counts them.
    """

    def __init__(self) -> None:
        self.is_due = False
        self._full_collections = 0
        self._unasked = 0
        self._start_over()

    def _start_over(self) -> None:
        """Reset the count; the heap's objects are not counted until `MOST_PROMOTED` objects have been promoted."""
        self._promoted = 0
        self._bound = MOST_PROMOTED

    def promote(self) -> None:
        """Promote all young objects, unless some objects are frozen, which promotion would thaw.

        If more than half of all objects have been promoted since the last full collection, run a full collection
        instead. If there are very many young objects, leave them to Python's own collection, which traverses them once.
        """
        self.is_due = False
        young = gc.get_count()[0]
        if young > MOST_PROMOTED or self._are_frozen():
            return
        full_collections = gc.get_stats()[2]["collections"]
        if full_collections != self._full_collections:
            self._full_collections = full_collections
            self._start_over()
        self._promoted += young
        if self._promoted > self._bound:
            # Counting a million objects takes 10 ms, so do not count again until the number of promoted objects exceeds
            # half the current number of objects.
            self._bound = max(MOST_PROMOTED, len(gc.get_objects(generation=2)) // 2)
            if self._promoted > self._bound:
                gc.collect()
                return
        gc.freeze()
        gc.unfreeze()

    def _are_frozen(self) -> bool:
        """Return whether objects are frozen; after finding some, do not look again for `UNASKED` calls."""
        if self._unasked:
            self._unasked -= 1
            return True
        are_frozen = gc.get_freeze_count() > 0
        self._unasked = UNASKED if are_frozen else 0
        return are_frozen


_promotion = _Promotion()


def _turn_off() -> bool:
    was_enabled = gc.isenabled()
    gc.disable()
    return was_enabled


def _put_back(was_enabled: bool) -> None:
    if not was_enabled:
        return
    if _promotion.is_due:
        _promotion.promote()
    gc.enable()


_collection = RefCountedSetting(_turn_off, _put_back)

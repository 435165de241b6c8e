"""Transfers between host and device: deduplication while a graph is lifted, and counters for one call."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_lifting = threading.local()
_counting = threading.local()


@contextmanager
def dedup_transfers() -> Iterator[dict[tuple[Any, object], Any]]:
    """Create each transfer only once in this thread until the block exits; yield the transfers' results by key."""
    outer = getattr(_lifting, "made", None)
    _lifting.made = {}
    try:
        yield _lifting.made
    finally:
        _lifting.made = outer


def transfer_once(key: tuple[Any, object], make: Callable[[], Any]) -> Any:
    """Return the result of the transfer `key` (variable, destination); in `dedup_transfers`, make it only once."""
    made = getattr(_lifting, "made", None)
    if made is None:
        return make()
    if key not in made:
        made[key] = make()
    return made[key]


@dataclass
class Traffic:
    """The number of transfers in one call and the bytes that they copy, grouped by the name of the transfer op."""

    transfers: Counter[str] = field(default_factory=Counter)
    nbytes: Counter[str] = field(default_factory=Counter)


@contextmanager
def count_transfers() -> Iterator[Traffic]:
    """Count this thread's transfers until the block exits."""
    outer = getattr(_counting, "traffic", None)
    _counting.traffic = Traffic()
    try:
        yield _counting.traffic
    finally:
        _counting.traffic = outer


def record_transfer(op: object, nbytes: int) -> None:
    """Record a transfer of `nbytes` bytes under the name of a transfer op or a description of the array."""
    traffic = getattr(_counting, "traffic", None)
    if traffic is not None:
        name = op if isinstance(op, str) else type(op).__name__
        traffic.transfers[name] += 1
        traffic.nbytes[name] += nbytes

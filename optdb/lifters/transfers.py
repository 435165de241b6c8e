"""Transfers between host and device: one per value while a graph is lifted, and counters for one call.

Device ops transfer their inputs. While a graph is lifted, ops that need the same value share its first transfer. When a
function runs, its transfer ops call `record_transfer`.
"""

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
    """Create each transfer only once in this thread until the block exits.

    Yields
    ------
    dict
        The results of the transfers by key.
    """
    outer = getattr(_lifting, "made", None)
    _lifting.made = {}
    try:
        yield _lifting.made
    finally:
        _lifting.made = outer


def transfer_once(key: tuple[Any, object], make: Callable[[], Any]) -> Any:
    """Return the variable of the transfer `key` in this lift; call `make` if there is none yet.

    Parameters
    ----------
    key : tuple
        The variable to transfer, and its destination.
    make : callable
        Creates the transfer. Outside of a lift, every request calls it.
    """
    made = getattr(_lifting, "made", None)
    if made is None:
        return make()
    if key not in made:
        made[key] = make()
    return made[key]


@dataclass
class Traffic:
    """The transfers of one call, per transfer op.

    Parameters
    ----------
    transfers : Counter
        Maps the name of a transfer op to the number of its runs.
    nbytes : Counter
        Maps the name of a transfer op to the number of bytes that it transferred.
    """

    transfers: Counter[str] = field(default_factory=Counter)
    nbytes: Counter[str] = field(default_factory=Counter)


@contextmanager
def count_transfers() -> Iterator[Traffic]:
    """Count the transfers of this thread until the block exits."""
    outer = getattr(_counting, "traffic", None)
    _counting.traffic = Traffic()
    try:
        yield _counting.traffic
    finally:
        _counting.traffic = outer


def record_transfer(op: object, nbytes: int) -> None:
    """Record the transfer of an array of `nbytes` bytes.

    Parameters
    ----------
    op : object
        The transfer op, or a description of the array if it was transferred without an op.
    nbytes : int
        The size of the array.
    """
    traffic = getattr(_counting, "traffic", None)
    if traffic is not None:
        name = op if isinstance(op, str) else type(op).__name__
        traffic.transfers[name] += 1
        traffic.nbytes[name] += nbytes

"""Transfers between host and device: a graph makes each one once, and a call records what it moves.

A device op makes the transfers of its inputs. While a graph is lifted, several ops ask for the same value; the first
transfer serves them all. When a function runs, its transfer ops call `record_transfer`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_lifting = threading.local()
_counting = threading.local()


@contextmanager
def dedup_transfers() -> Iterator[dict[Hashable, Any]]:
    """Make each transfer once until the block exits, in this thread.

    Yields
    ------
    dict
        Key of the transfer to the variable that it gave.
    """
    outer = getattr(_lifting, "made", None)
    _lifting.made = {}
    try:
        yield _lifting.made
    finally:
        _lifting.made = outer


def transfer_once(key: Hashable, make: Callable[[], Any]) -> Any:
    """Return the variable that was made for `key` in this lift; `make` it if there is none.

    Parameters
    ----------
    key : hashable
        The variable that is moved, and where to.
    make : callable
        Makes the transfer; called each time where no graph is being lifted.
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
        Name of the transfer op to how often it ran.
    nbytes : Counter
        Name of the transfer op to how many bytes it moved.
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
    """Record that an array of `nbytes` bytes was moved.

    Parameters
    ----------
    op : object
        The transfer op that moved it, or a text that says what was moved, where no op did it.
    nbytes : int
        The size of the array.
    """
    traffic = getattr(_counting, "traffic", None)
    if traffic is not None:
        name = op if isinstance(op, str) else type(op).__name__
        traffic.transfers[name] += 1
        traffic.nbytes[name] += nbytes

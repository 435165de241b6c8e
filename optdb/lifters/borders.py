"""Each value crosses a border once: transfers that a lift made are remembered while it goes on.

Device ops move their inputs to the device where they are made. While a graph is
lifted, many ops ask for the same value; the first transfer serves them all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

_lifting = threading.local()


@contextmanager
def one_lift() -> Iterator[dict[Hashable, Any]]:
    """Remember the transfers that are made meanwhile, in this thread.

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

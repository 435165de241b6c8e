"""Construction of ops through the store.

The op's own constructor makes a new op. If the store has a shared op that is
equal to it, that op is returned, and the new one is dropped. So positional,
keyword and default arguments lead to the same op, and no constructor ever runs
on a shared op.
"""

from __future__ import annotations

from typing import Any

from optdb.cache.calls import call_key, recall, remember
from optdb.cache.store import Store
from optdb.host.api.graph import PureOp

#: The store of the process.
store = Store()


def construct(cls: type, /, *args: Any, **kwargs: Any) -> Any:
    """Return the shared op that is equal to ``cls(*args, **kwargs)``."""
    key = call_key(cls, args, kwargs)
    if key is not None:
        cached = recall(store, key)
        if cached is not None:
            return cached
    op = type.__call__(cls, *args, **kwargs)
    if not isinstance(op, PureOp):
        return op
    shared = store.share(op)
    if key is not None:
        remember(store, key, (args, kwargs), shared)
    return shared

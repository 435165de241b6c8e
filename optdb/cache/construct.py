"""What happens when an op class is called.

The op is made as ever, by its own constructor, and the store is asked for the
one that is like it; the new one goes, if there is one. So positional, keyword
and default arguments come to the same op, and no constructor ever runs on an op
that is shared.
"""

from __future__ import annotations

from typing import Any

from optdb.cache.calls import call_key, recall, remember
from optdb.cache.store import Store
from optdb.host.graph import PureOp

#: The one store of the process.
store = Store()


def construct(cls: type, /, *args: Any, **kwargs: Any) -> Any:
    """Return the op that ``cls(*args, **kwargs)`` gives: one object for one op."""
    key = call_key(cls, args, kwargs)
    if key is not None:
        known = recall(store, key)
        if known is not None:
            return known
    op = type.__call__(cls, *args, **kwargs)
    if not isinstance(op, PureOp):
        return op
    shared = store.share(op)
    if key is not None:
        remember(store, key, (args, kwargs), shared)
    return shared

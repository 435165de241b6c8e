"""Makes copying and unpickling of a shared op return the shared op.

The pickle of a shared op contains a call of ``copy.copy``, whose argument is the op as Theano pickles it. If the cache
is installed, this call returns the shared op; without optdb, Theano can also load the pickle. Ops from other pickles
are replaced with shared ops when they become part of a node.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

from optdb.cache.construct import store
from optdb.host.api.graph import PureOp
from optdb.host.api.opcopies import Apply, as_pickled_by_theano, copy_to_change, derived_op_patches, has_own_reduction
from optdb.host.api.patching import Patch, Wrapper


def unshared_copy(op: PureOp) -> PureOp:
    """Return a modifiable, unshared copy of an op.

    When the copy becomes part of a node, it is replaced by the equal shared op.

    Parameters
    ----------
    op : Op
        The op; it is not modified.

    Returns
    -------
    Op
        The copy, whose attributes may be set.

    Examples
    --------
    >>> import optdb
    >>> from theano.tensor import Sum
    >>> with optdb.cache.install():
    ...     op = optdb.cache.unshared_copy(Sum(axis=(0,)))
    ...     op.axis = (1,)
    """
    copied: PureOp = copy_to_change(op)
    return copied


def copy_of_shared(op: PureOp, memo: dict[int, Any] | None = None) -> PureOp:
    """Return the shared op that is equal to `op`; if `op` cannot be shared, return a copy (deep if `memo` is given)."""
    shared = store.adopt(op)
    entry = store.entry(shared)
    if entry is None:
        copied: PureOp = copy_to_change(op, memo)
        return copied
    entry.stands_for_copies = True
    return shared


def _reduce(self: PureOp, protocol: int) -> tuple[Any, ...]:
    # The pickle of an op that is not shared contains no call of `copy`. Otherwise, pickling would never end: the
    # argument of the call, which is not shared either, would be pickled in the same way. Classes that define
    # ``__reduce__`` need no call of `copy`.
    if store.entry(self) is None or has_own_reduction(self):
        return as_pickled_by_theano(self, protocol)
    return copy.copy, (copy_to_change(self),)


def _adopting(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def init_node(self: Apply, op: PureOp, inputs: Any, outputs: Any) -> None:
        init(self, store.adopt(op) if isinstance(op, PureOp) else op, inputs, outputs)

    return init_node


def _restore_node(self: Apply, state: dict[str, Any]) -> None:
    vars(self).update(state)
    if isinstance(self.op, PureOp):
        self.op = store.adopt(self.op)


def copy_patches() -> list[Patch]:
    """Return the patches that make copying a shared op return the op itself."""
    return [
        Patch(PureOp, "__copy__", copy_of_shared, "copying a shared op returns the op itself"),
        Patch(PureOp, "__deepcopy__", copy_of_shared, "copying a shared op returns the op itself"),
        Patch(PureOp, "__reduce_ex__", _reduce, "unpickling an op returns the shared one"),
        Wrapper(Apply, "__init__", _adopting, "ops created before installation are replaced by shared ones"),
        Patch(Apply, "__setstate__", _restore_node, "graphs pickled without the cache contain ops that are not shared"),
        *derived_op_patches(),
    ]

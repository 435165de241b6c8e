"""Copies and pickles of shared ops give the shared op.

While the cache is installed, these functions replace methods of all op classes.  Theano reads the pickles
without optdb: it holds the op as Theano pickles it, inside a call of ``copy.copy``.  Where the cache is
installed, that call gives the one op; elsewhere it gives a copy.  Ops in pickles without that call, and others that
are made without a constructor, are exchanged for the one op when they become part of a node.
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
    """Return an unshared copy of an op, to be changed.

    When the copy becomes part of a node, the one op that is like it replaces it.

    Parameters
    ----------
    op : Op
        The op; it stays as it is.

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
    """Return the one op that is like `op` in place of a copy; a copy, deep with a memo, if it cannot be shared."""
    shared = store.adopt(op)
    entry = store.entry(shared)
    if entry is None:
        copied: PureOp = copy_to_change(op, memo)
        return copied
    entry.stands_for_copies = True
    return shared


def _reduce(self: PureOp, protocol: int) -> tuple[Any, ...]:
    # A class's own reduction holds no op. A copy of the op around it would be pickled the same way, without end.
    if store.entry(self) is None or has_own_reduction(self):
        return as_pickled_by_theano(self, protocol)
    return copy.copy, (copy_to_change(self),)


def _adopting(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def init_node(self: Apply, op: PureOp, inputs: Any, outputs: Any) -> None:
        init(self, store.adopt(op) if isinstance(op, PureOp) else op, inputs, outputs)

    return init_node


def _restore_node(self: Apply, state: dict[str, Any]) -> None:
    """Set the state of an unpickled node; its op may come from a pickle that knows nothing of the cache."""
    vars(self).update(state)
    if isinstance(self.op, PureOp):
        self.op = store.adopt(self.op)


def copy_patches() -> list[Patch]:
    """Return the patches that prevent copies beside the shared op."""
    return [
        Patch(PureOp, "__copy__", copy_of_shared, "a copy of a shared op is that op"),
        Patch(PureOp, "__deepcopy__", copy_of_shared, "a copy of a shared op is that op"),
        Patch(PureOp, "__reduce_ex__", _reduce, "unpickling an op gives the shared one"),
        Wrapper(Apply, "__init__", _adopting, "ops that were made before are exchanged for the shared ones"),
        Patch(Apply, "__setstate__", _restore_node, "old pickles of graphs know nothing of shared ops"),
        *derived_op_patches(),
    ]

"""Copies of ops for modification, and Theano's functions that make such copies."""

from __future__ import annotations

import copy
from typing import Any

from theano.gof import Apply
from theano.tensor import elemwise

from optdb.host.api.graph import PureOp
from optdb.host.api.patching import Patch


def has_own_reduction(op: PureOp) -> bool:
    """Return whether the class of `op` defines ``__reduce__``; unpickling may then return `op` itself."""
    return type(op).__reduce__ is not object.__reduce__


def as_pickled_by_theano(op: PureOp, protocol: int = 4) -> tuple[Any, ...]:
    """Return the result of ``__reduce_ex__`` without optdb's patches."""
    reduction = object.__reduce_ex__(op, max(protocol, 2))
    assert isinstance(reduction, tuple), "ops are not globals"
    return reduction


def copy_to_change(op: Any, memo: dict[int, Any] | None = None) -> Any:
    """Return a new object with the state of `op`, or with a deep copy of the state if a memo is given."""
    reduction: Any = object.__reduce__(op) if has_own_reduction(op) else as_pickled_by_theano(op)
    make, args = reduction[:2]
    state = reduction[2] if len(reduction) > 2 else None
    twin = make(*args)
    if memo is not None:
        memo[id(op)] = twin
        state = copy.deepcopy(state, memo)
    if hasattr(twin, "__setstate__"):
        twin.__setstate__(state)
    elif state:
        vars(twin).update(state)
    return twin


def _copy(value: Any) -> Any:
    return copy_to_change(value) if isinstance(value, PureOp) else copy.copy(value)


def derived_op_patches() -> list[Patch]:
    """Return patches for functions that copy an op to change the copy, such as ``make_node`` of reductions."""
    return [Patch(elemwise, "copy", _copy, "reductions copy their op to change the copy")]

"""Rewriters that are tried before the others on the same node.

Theano tries the rewriters of an op in the order in which they were registered.  Some of them move a node about, and
others, registered later, find that the node is zero.  A product of zero that has sunk into the branches of a switch
is not found to be zero any more where the switch's condition has another shape: both branches compute zero, and the
condition is computed for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from theano.tensor import opt

from optdb.host.rewriters import LocalOptimizer

#: Rewriter that finds a node to be zero, to the one that it is tried before.
_BEFORE: dict[LocalOptimizer, LocalOptimizer] = {
    opt.local_mul_zero: opt.local_mul_switch_sink,
    opt.local_zero_div: opt.local_div_switch_sink,
}

_FIRST_IDS = frozenset(map(id, _BEFORE))


def in_order_of_precedence(rewriters: Iterable[LocalOptimizer]) -> list[LocalOptimizer]:
    """Return `rewriters` in the given order, except that some come right before another one."""
    ordered = list(rewriters)
    if _FIRST_IDS.isdisjoint(map(id, ordered)):
        return ordered
    for first, second in _BEFORE.items():
        if first in ordered and second in ordered[: ordered.index(first)]:
            ordered.remove(first)
            ordered.insert(ordered.index(second), first)
    return ordered

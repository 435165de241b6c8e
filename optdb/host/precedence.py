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

_FIRST: frozenset[LocalOptimizer] = frozenset({opt.local_mul_zero, opt.local_zero_div})


def in_order_of_precedence(rewriters: Iterable[LocalOptimizer]) -> list[LocalOptimizer]:
    """Return `rewriters` with those that make a node a constant in front, otherwise in the given order."""
    return sorted(rewriters, key=lambda rewriter: rewriter not in _FIRST)

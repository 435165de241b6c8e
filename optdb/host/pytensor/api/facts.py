"""What is known of PyTensor's rewriters beforehand: nothing.

What a rewriter reads is observed instead: see `optdb.host.pytensor.reads`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from optdb.host.api.rewriters import LocalOptimizer
from optdb.host.pytensor.reads import LASTING

__all__ = ["Facts", "facts_of", "in_order_of_precedence"]


class Facts(NamedTuple):
    """What is known of a node rewriter; a guard and tracks that say more than its own are Theano's alone."""

    guard: Callable[[Any], bool] | None = None
    tracks: Callable[[Any], bool] | None = None

    def lasting_refusals(self) -> tuple[bool]:
        """Return the refusals that last until an ancestor of the node changes."""
        return (LASTING,)

    def may_apply(self, op: Any) -> bool:
        """Tell whether the rewriter may apply to a node of `op`."""
        return True


_NOTHING = Facts()


def facts_of(rewriter: LocalOptimizer) -> Facts:
    """Return what is known of a rewriter."""
    return _NOTHING


def in_order_of_precedence(rewriters: Iterable[LocalOptimizer]) -> list[LocalOptimizer]:
    """Return `rewriters` in the given order."""
    return list(rewriters)

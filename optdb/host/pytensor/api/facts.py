"""Facts about PyTensor's rewriters that are known in advance: none.

The reads of a rewriter are observed instead: see `optdb.host.pytensor.reads`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from optdb.host.api.rewriters import LocalOptimizer
from optdb.host.pytensor.reads import LASTING

__all__ = ["NoFacts", "facts_of", "in_order_of_precedence"]


class NoFacts(NamedTuple):
    """The facts about any node rewriter; guards, and tracks narrower than its own, exist only for Theano."""

    guard: Callable[[Any], bool] | None = None
    tracks: Callable[[Any], bool] | None = None

    def lasting_refusals(self) -> tuple[bool]:
        """Return the refusals that last until an ancestor of the node changes."""
        return (LASTING,)

    def may_apply(self, op: Any) -> bool:
        """Return whether the rewriter may apply to a node of `op`."""
        return True


_NOTHING = NoFacts()


def facts_of(rewriter: LocalOptimizer) -> NoFacts:
    """Return the facts about a rewriter."""
    return _NOTHING


def in_order_of_precedence(rewriters: Iterable[LocalOptimizer]) -> list[LocalOptimizer]:
    """Return `rewriters` in the given order."""
    return list(rewriters)

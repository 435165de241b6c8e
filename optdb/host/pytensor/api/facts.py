"""Facts about PyTensor's rewriters that are known in advance; `optdb.host.pytensor.reads` observes their reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from optdb.host.api.rewriters import LocalOptimizer
from optdb.host.pytensor.guards import GUARDS, TRACKS, Guard
from optdb.host.pytensor.reads import LASTING


class RewriterFacts(NamedTuple):
    """The facts about a node rewriter, like those of Theano's rewriters."""

    guard: Guard | None = None
    tracks: Callable[[Any], bool] | None = None

    def lasting_refusals(self) -> tuple[bool]:
        """Return the refusals that last until an ancestor of the node changes."""
        return (LASTING,)

    def may_apply(self, op: Any) -> bool:
        """Return whether the rewriter may apply to a node with `op`, which it declares to track."""
        return self.tracks is None or self.tracks(op)


def facts_of(rewriter: LocalOptimizer) -> RewriterFacts:
    """Return the facts about a rewriter."""
    return RewriterFacts(GUARDS.get(rewriter), TRACKS.get(rewriter))


def in_order_of_precedence(rewriters: Iterable[LocalOptimizer]) -> list[LocalOptimizer]:
    """Return `rewriters` in the given order."""
    return list(rewriters)

"""Facts about PyTensor's rewriters; `optdb.host.pytensor.reads` finds the rewriters that will keep refusing a node."""

from __future__ import annotations

from collections.abc import Iterable

from optdb.host.api.replacements import Facts
from optdb.host.api.rewriters import LocalOptimizer
from optdb.host.pytensor.guards import GUARDS, TRACKS
from optdb.host.pytensor.reads import LASTING


def facts_of(rewriter: LocalOptimizer) -> Facts:
    """Return the facts about a rewriter."""
    return Facts(TRACKS.get(rewriter), GUARDS.get(rewriter), (LASTING,))


def in_order_of_precedence(rewriters: Iterable[LocalOptimizer]) -> list[LocalOptimizer]:
    """Return `rewriters` unchanged, as a list: for PyTensor, no rewriter must precede another one."""
    return list(rewriters)

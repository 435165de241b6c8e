"""Limits on the growth of a graph and on rewriter applications in one run of the engine.

A rewriter may be applied to its own output endlessly. The limits therefore depend on the run's *base size*, which
counts only the nodes of the starting graph and their direct replacements.
"""

from __future__ import annotations

from collections.abc import Iterable

from optdb.host.api.graph import Apply

#: For the limit on applications, the size of the graph is capped at this multiple of the base size.
MAX_GROWTH = 10
MIN_BASE_NODES = 10
#: Any graph may have this many nodes, regardless of its base size.
MIN_NODE_LIMIT = 20_000
#: A graph may grow to this multiple of its base size, if this multiple exceeds `MIN_NODE_LIMIT`.
MAX_NODE_RATIO = 100


class LimitExceeded(Exception):
    """Raised if a rewriter was applied too often or made the graph grow too large."""

    def __init__(self, rewriter: str, reason: str) -> None:
        super().__init__(f"'{rewriter}' {reason}")
        self.rewriter = rewriter
        self.reason = reason


class GrowthLimits:
    """The limits of one run that starts from a graph with the given nodes."""

    def __init__(self, nodes: Iterable[Apply], max_use_ratio: float) -> None:
        self._original = set(nodes)
        self._nodes_before = len(self._original)
        self._base = self._nodes_before
        self._max_use_ratio = max_use_ratio

    def count_replacement(self, node: Apply, made: int) -> None:
        """If `node` is in the starting graph, increase the base size by the number of nodes that replace `node`."""
        if node in self._original:
            self._original.remove(node)
            self._base += made

    def check_uses(self, rewriter: str, uses: int, nodes_most: int) -> None:
        """Raise LimitExceeded if `rewriter` was applied too often for a graph that had at most `nodes_most` nodes."""
        nodes = min(nodes_most, MAX_GROWTH * max(self._base, MIN_BASE_NODES))
        if uses > nodes * self._max_use_ratio:
            raise LimitExceeded(
                rewriter,
                f"was applied {uses} times, more often than max_use_ratio allows; the graph had {self._nodes_before} "
                f"nodes at the start and at most {nodes_most} nodes",
            )

    def exceeds_node_limit(self, nodes: int) -> bool:
        """Return whether a graph of `nodes` nodes has grown too large."""
        return nodes > MIN_NODE_LIMIT and nodes > MAX_NODE_RATIO * self._base

    def node_limit_exceeded(self, rewriter: str, nodes: int) -> LimitExceeded:
        """Return the error for a graph that has grown to `nodes` nodes, mostly because of `rewriter`."""
        return LimitExceeded(
            rewriter,
            f"made the graph grow from {self._nodes_before} to {nodes} nodes, which is more than the engine allows",
        )

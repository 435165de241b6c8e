"""Theano's one-pass optimizers, which skip what their rewriters do not track.

A one-pass optimizer offers each node of a graph to its rewriter, whatever the
rewriter tracks; many of a pipeline's passes look for an op that the graph does
not have at all.  A pass over rewriters whose tracks can be trusted looks at
the ops first.  Those are Theano's own: a third party's rewriter may work on
more ops than it tracks, which Theano's pass tolerates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host.graph import Apply, FunctionGraph, Variable
from optdb.host.rewriters import TopoOptimizer, trusted_tracks


class OnePass(TopoOptimizer):
    """A TopoOptimizer that knows which ops concern it.

    Parameters
    ----------
    stock : TopoOptimizer
        Whose rewriter, order and failure callback are taken over.
    tracks : sequence
        Op classes, whose subclasses count too, and op instances.
    """

    def __init__(self, stock: TopoOptimizer, tracks: Sequence[Any]) -> None:
        super().__init__(stock.local_opt, stock.order, failure_callback=stock.failure_callback)
        self.ignore_newtrees = stock.ignore_newtrees
        self._classes = tuple(track for track in tracks if isinstance(track, type))
        self._instances = [track for track in tracks if not isinstance(track, type)]
        #: Op by id, which is kept, to the answer.
        self._known: dict[int, tuple[Any, bool]] = {}

    @classmethod
    def of(cls, stock: TopoOptimizer) -> TopoOptimizer:
        """Return `stock` as a OnePass where its tracks can be trusted, else itself."""
        tracks = trusted_tracks(stock.local_opt)
        return stock if tracks is None else cls(stock, tracks)

    def apply(self, fgraph: FunctionGraph, start_from: Sequence[Variable] | None = None) -> tuple[Any, ...]:
        """Rewrite `fgraph`, and return Theano's profile of a pass."""
        try:
            if any(self._concerns(node.op) for node in fgraph.apply_nodes):
                return super().apply(fgraph, start_from)
        finally:
            self._known.clear()
        size = len(fgraph.apply_nodes)
        return (self, 0, size, size, 0, 0, 0, self.local_opt)

    def process_node(self, fgraph: FunctionGraph, node: Apply, lopt: Any = None) -> bool:
        """Offer `node` to the rewriter if it tracks its op."""
        return self._concerns(node.op) and super().process_node(fgraph, node, lopt)

    def _concerns(self, op: Any) -> bool:
        entry = self._known.get(id(op))
        if entry is None:
            entry = self._known[id(op)] = (op, isinstance(op, self._classes) or op in self._instances)
        return entry[1]

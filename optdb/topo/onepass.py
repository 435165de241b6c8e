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

from optdb.host.folding import is_folding_pass
from optdb.host.graph import Apply, Constant, FunctionGraph, Variable
from optdb.host.rewriters import TopoOptimizer, trusted_tracks
from optdb.host.scan_passes import has_scan, is_scan_pass


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
        if is_folding_pass(stock):
            return FoldingPass(stock, ())
        tracks = trusted_tracks(stock.local_opt)
        return stock if tracks is None else cls(stock, tracks)

    def is_idle(self, fgraph: FunctionGraph) -> bool:
        """Tell whether no node of `fgraph` concerns the rewriter."""
        try:
            return not any(map(self._concerns, fgraph.apply_nodes))
        finally:
            self._known.clear()

    def apply(self, fgraph: FunctionGraph, start_from: Sequence[Variable] | None = None) -> tuple[Any, ...]:
        """Rewrite `fgraph`, and return Theano's profile of a pass."""
        try:
            nodes = list(filter(self._concerns, fgraph.apply_nodes))
            if not nodes:
                return self._profile(0, len(fgraph.apply_nodes), len(fgraph.apply_nodes))
            if len(nodes) == 1 and self._is_final and start_from is None:  # a single node needs no sorting
                size = len(fgraph.apply_nodes)
                changed = self.process_node(fgraph, nodes[0])
                return self._profile(int(changed), size, len(fgraph.apply_nodes))
            return super().apply(fgraph, start_from)
        finally:
            self._known.clear()

    def process_node(self, fgraph: FunctionGraph, node: Apply, lopt: Any = None) -> bool:
        """Offer `node` to the rewriter if it tracks its op."""
        return self._concerns(node) and super().process_node(fgraph, node, lopt)

    def _profile(self, changed: int, nodes_before: int, nodes_after: int) -> tuple[Any, ...]:
        return (self, changed, nodes_before, nodes_after, 0, 0, 0, self.local_opt)

    @property
    def _is_final(self) -> bool:
        """Whether no change brings in a node that is to be looked at in this pass."""
        return self.ignore_newtrees

    def _concerns(self, node: Apply) -> bool:
        op = node.op
        entry = self._known.get(id(op))
        if entry is None:
            entry = self._known[id(op)] = (op, isinstance(op, self._classes) or op in self._instances)
        return entry[1]


class FoldingPass(OnePass):
    """Theano's constant folding, which concerns the nodes whose inputs are constants."""

    _is_final = False  # what is folded may make a user constant

    def _concerns(self, node: Apply) -> bool:
        return all(isinstance(var, Constant) for var in node.inputs)


def is_idle(rewriter: Any, fgraph: FunctionGraph) -> bool:
    """Tell whether a graph rewriter is known to find nothing to do in `fgraph`: those that can tell are asked."""
    tell = getattr(rewriter, "is_idle", None)
    return tell(fgraph) if tell is not None else is_scan_pass(rewriter) and not has_scan(fgraph)

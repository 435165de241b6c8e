"""One-pass optimizers that skip the nodes that their rewriters do not track.

Only the tracks of Theano's own rewriters are trusted: other rewriters may also change nodes that they do not track.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from optdb.host.api.bookkeeping import nodes_by_op, order_by_data
from optdb.host.api.facts import facts_of, has_scan, is_scan_pass
from optdb.host.api.folding import is_folding_pass
from optdb.host.api.graph import Apply, Constant, FunctionGraph, PureOp, Variable
from optdb.host.api.rewriters import TopoOptimizer, trusted_tracks


class OnePass(TopoOptimizer):
    """A TopoOptimizer like `stock` that visits only the nodes whose op or op class is in `tracks`."""

    def __init__(self, stock: TopoOptimizer, tracks: Sequence[Any]) -> None:
        super().__init__(stock.local_opt, stock.order, stock.ignore_newtrees, stock.failure_callback)
        self._classes = tuple(track for track in tracks if isinstance(track, type))
        #: Maps an op class to the tracked ops of this class.
        self._ops: dict[type, list[Any]] = {}
        for track in tracks:
            if not isinstance(track, type):
                self._ops.setdefault(type(track), []).append(track)
        self._guard = facts_of(stock.local_opt).guard

    @classmethod
    def of(cls, stock: TopoOptimizer) -> TopoOptimizer:
        """Return a FoldingPass or a OnePass that replaces `stock`, or `stock` itself if its tracks are not trusted."""
        if is_folding_pass(stock):
            return FoldingPass(stock.local_opt, stock.order, stock.ignore_newtrees, stock.failure_callback)
        tracks = trusted_tracks(stock.local_opt)
        return stock if tracks is None else cls(stock, tracks)

    def is_idle(self, fgraph: FunctionGraph) -> bool:
        """Return whether the rewriter applies to no node of `fgraph`."""
        return not self._concerned(fgraph)

    def apply(self, fgraph: FunctionGraph, start_from: Sequence[Variable] | None = None) -> tuple[Any, ...]:
        """Rewrite `fgraph`, and return a profile of the pass in Theano's format."""
        if start_from is not None:
            return super().apply(fgraph, start_from)
        size = len(fgraph.apply_nodes)
        callbacks = fgraph.execute_callbacks_time
        start = perf_counter()
        nodes = self._in_order(fgraph)
        sorted_at = perf_counter()
        changed = self._offer(fgraph, nodes) if nodes else 0
        return (
            *(self, changed, size, len(fgraph.apply_nodes), sorted_at - start, perf_counter() - sorted_at),
            *(fgraph.execute_callbacks_time - callbacks, self.local_opt),
        )

    def _in_order(self, fgraph: FunctionGraph) -> list[Apply]:
        nodes = self._concerned(fgraph)
        if len(nodes) < 2:
            return nodes
        concerned = set(nodes)
        return [node for node in order_by_data(fgraph) if node in concerned]

    def _offer(self, fgraph: FunctionGraph, nodes: list[Apply]) -> int:
        """Apply the rewriter to `nodes` and to the nodes that it creates; return the number of replaced nodes."""
        queue = deque(nodes)
        take = queue.pop if self.order == "out_to_in" else queue.popleft
        node = None

        def add(new: Apply) -> None:
            if new is not node and self._concerns(new.op):
                queue.append(new)

        updater = self.attach_updater(fgraph, add, None, name=getattr(self, "name", None))
        changed = 0
        try:
            while queue:
                node = take()
                if node in fgraph.apply_nodes:
                    changed += self.process_node(fgraph, node)
        finally:
            self.detach_updater(fgraph, updater)
        return changed

    def _concerned(self, fgraph: FunctionGraph) -> list[Apply]:
        """Return the tracked nodes in any order; if the rewriter's guard rejects all of them, return an empty list."""
        found: list[Apply] = []
        for cls, nodes_of in nodes_by_op(fgraph).items():
            if cls in self._ops or issubclass(cls, self._classes):
                for nodes in nodes_of.values():
                    if self._concerns(nodes[0].op):
                        found += nodes
        if self._guard is not None and not any(map(self._guard, found)):
            return []
        return found

    def _concerns(self, op: PureOp) -> bool:
        return isinstance(op, self._classes) or op in self._ops.get(type(op), ())


class FoldingPass(TopoOptimizer):
    """A constant folding pass that is skipped for graphs without nodes to fold."""

    def is_idle(self, fgraph: FunctionGraph) -> bool:
        """Return whether `fgraph` has no node to fold."""
        return not any(map(_is_constant, fgraph.apply_nodes))

    def apply(self, fgraph: FunctionGraph, start_from: Sequence[Variable] | None = None) -> tuple[Any, ...]:
        """Rewrite `fgraph`, and return a profile of the pass in Theano's format."""
        if self.is_idle(fgraph):
            size = len(fgraph.apply_nodes)
            return (self, 0, size, size, 0, 0, 0, self.local_opt)
        return super().apply(fgraph, start_from)


def _is_constant(node: Apply) -> bool:
    for var in node.inputs:  # noqa: SIM110  a loop takes half as long as all() with a generator
        if not isinstance(var, Constant):
            return False
    return True


def is_idle(rewriter: Any, fgraph: FunctionGraph) -> bool:
    """Return whether a graph rewriter is known to leave `fgraph` unchanged."""
    tell = getattr(rewriter, "is_idle", None)
    return tell(fgraph) if tell is not None else is_scan_pass(rewriter) and not has_scan(fgraph)

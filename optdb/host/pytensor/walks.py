"""Faster passes of a single node rewriter over a graph.

A pass skips nodes that the rewriter does not track or that its guard refuses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

from pytensor.graph.rewriting import basic
from pytensor.graph.rewriting.basic import FromFunctionNodeRewriter, SequentialNodeRewriter, WalkingGraphRewriter

from optdb.host.api.graph import Apply, FunctionGraph, PureOp, Variable
from optdb.host.api.patching import Wrapper, around
from optdb.host.pytensor.constants import CachedByOp
from optdb.host.pytensor.guards import GUARDS, Guard
from optdb.host.pytensor.lean import ORDER

#: Returns whether a node rewriter tracks an op. The rewriter immediately declines nodes of untracked ops.
_Tracks = CachedByOp[bool]


def _tracks_of(rewriter: Any) -> _Tracks | None:
    """Return a test for the ops that a rewriter tracks; None if the rewriter may apply to any op."""
    if type(rewriter) is SequentialNodeRewriter:
        return CachedByOp(lambda op: bool(rewriter.tracker.get_trackers(op)))
    if type(rewriter) is not FromFunctionNodeRewriter or not rewriter._tracks:
        return None
    types = (rewriter._tracked_types, rewriter._tracked_op_pattern_types)
    tracked = rewriter._tracked_ops
    return CachedByOp(lambda op: isinstance(op, types) or bool(tracked and op in tracked))


def _any_op(op: PureOp) -> bool:
    return True


@around
def _over_tracked_nodes(
    walk: Callable[..., Any], self: WalkingGraphRewriter, fgraph: FunctionGraph, start_from: Any = None
) -> Any:
    tracks = _tracks_of(self.node_rewriter)
    guard = GUARDS.get(self.node_rewriter)
    if (tracks is None and guard is None) or self.order == "dfs":
        return walk(self, fgraph, start_from)
    tracks = tracks or CachedByOp(_any_op)
    size = len(fgraph.apply_nodes)
    ops = _distinct_ops(fgraph)
    wanted = {key for key, op in ops.items() if tracks(op)}
    if not wanted:
        return (self, 0, size, size, 0.0, 0.0, 0.0, self.node_rewriter)
    callbacks_before = fgraph.execute_callbacks_time
    start = perf_counter()
    ordered = _order(fgraph) if start_from is None else basic.toposort(start_from)
    queue = deque([node for node in ordered if id(node.op) in wanted])
    sorted_at = perf_counter()
    applied = _TrackedWalk(self, fgraph, tracks, guard, queue).run()
    return (
        *(self, applied, size, len(fgraph.apply_nodes), sorted_at - start, perf_counter() - sorted_at),
        *(fgraph.execute_callbacks_time - callbacks_before, self.node_rewriter),
    )


class _GraphOrder(tuple):
    """A graph's outputs, its nodes in topological order (or None), and its ops by id."""

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, ()  # a graph that is loaded or copied is sorted again


def _order(fgraph: FunctionGraph) -> list[Apply]:
    outputs, nodes, ops = _kept(fgraph)
    if nodes is None:
        nodes = list(basic.toposort(outputs))
        vars(fgraph)[ORDER] = _GraphOrder((outputs, nodes, ops))
    return nodes


def _distinct_ops(fgraph: FunctionGraph) -> dict[int, PureOp]:
    return _kept(fgraph)[2]


def _kept(fgraph: FunctionGraph) -> tuple[list[Variable], list[Apply] | None, dict[int, PureOp]]:
    outputs = list(fgraph.outputs)
    kept = vars(fgraph).get(ORDER)
    if kept and kept[0] == outputs:
        return kept
    made = _GraphOrder((outputs, None, {id(node.op): node.op for node in fgraph.apply_nodes}))
    vars(fgraph)[ORDER] = made
    return made


class _TrackedWalk:
    """One pass over the tracked nodes of a graph, including new nodes.

    `tracks` returns whether nodes of an op are visited. `queue` contains the first nodes, in topological order.
    """

    def __init__(
        self,
        rewriter: WalkingGraphRewriter,
        fgraph: FunctionGraph,
        tracks: _Tracks,
        guard: Guard | None,
        queue: deque[Apply],
    ) -> None:
        self._rewriter = rewriter
        self._fgraph = fgraph
        self._tracks = tracks
        node_rewriter = rewriter.node_rewriter
        #: Whether the rewriter must check each node's op again, because `tracks` ignores parameters of ops.
        self._enforces = type(node_rewriter) is not FromFunctionNodeRewriter or bool(node_rewriter._tracked_op_patterns)
        self._guard = guard
        self._queue = queue
        self._current: Apply | None = None

    def run(self) -> int:
        rewriter, fgraph, queue, guard = self._rewriter, self._fgraph, self._queue, self._guard
        take = queue.pop if rewriter.order == "out_to_in" else queue.popleft
        updater = rewriter.attach_updater(fgraph, self._enqueue, None, name=getattr(rewriter, "name", None))
        applied = 0
        try:
            while queue:
                node = take()
                if node in fgraph.apply_nodes and (guard is None or guard(node)):
                    self._current = node
                    applied += rewriter.process_node(fgraph, node, enforce_tracks=self._enforces)
        finally:
            rewriter.detach_updater(fgraph, updater)
        return applied

    def _enqueue(self, node: Apply) -> None:
        if node is not self._current and self._tracks(node.op):
            self._queue.append(node)


PATCHES = [Wrapper(WalkingGraphRewriter, "apply", _over_tracked_nodes, "most passes track few ops of a graph")]

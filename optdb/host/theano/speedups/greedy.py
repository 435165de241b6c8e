"""Theano's ``pre_greedy_local_optimizer``, without repeated visits of the same nodes.

Rewriters of slices and Scans simplify an expression each time they extend it. A node is skipped if no rewriter has
applied to it or its ancestors: these do not change until the node enters a graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from theano.scan_module import scan_opt
from theano.tensor import opt

from optdb.host.api.facts import facts_of
from optdb.host.api.graph import Apply, Variable
from optdb.host.api.patching import Patch
from optdb.host.api.rewriters import LocalOptimizer

#: Maps the ids of rewriters to the rewriters (kept alive), and to the nodes that they do not change.
_unchanged: dict[tuple[int, ...], tuple[Sequence[LocalOptimizer], set[Apply]]] = {}


def forget() -> None:
    """Clear the cache of nodes."""
    _unchanged.clear()


def pre_greedy_local_optimizer(list_optimizations: Sequence[LocalOptimizer], out: Variable) -> Variable:
    """Apply node rewriters once to the ancestors of `out` that are not in a graph, operands first."""
    if out.owner is None or out.index is None:
        return out
    key = tuple(map(id, list_optimizations))
    if key not in _unchanged:
        _unchanged[key] = (list_optimizations, set())
    pass_ = _Pass(*_unchanged[key])
    return pass_.rewrite(out.owner)[out.index]


class _Pass:
    """One traversal of an expression, which adds to the set of unchanged nodes."""

    def __init__(self, rewriters: Sequence[LocalOptimizer], unchanged: set[Apply]) -> None:
        self._rewriters = rewriters
        self._unchanged = unchanged
        self._results: dict[Variable, Variable] = {}

    def rewrite(self, node: Apply) -> Sequence[Variable]:
        """Return the replacements of the outputs of `node`."""
        if hasattr(node, "fgraph") or node in self._unchanged:
            return node.outputs
        for i, var in enumerate(node.inputs):
            node.inputs[i] = self._result(var)
        results = self._transformed(node)
        if results is node.outputs and all(map(self._is_left_alone, node.inputs)):
            self._unchanged.add(node)
        return results

    def _result(self, var: Variable) -> Variable:
        if var not in self._results:
            if var.owner is None:
                return var
            self._results.update(zip(var.owner.outputs, self.rewrite(var.owner), strict=True))
        return self._results[var]

    def _transformed(self, node: Apply) -> Sequence[Variable]:
        """Try each rewriter on `node`; the last one that applies wins, as in Theano."""
        results = node.outputs
        for rewriter in self._rewriters:
            if not _is_candidate(rewriter, node):
                continue
            offered = rewriter.transform(node)
            if offered is None or offered is False:
                continue
            assert len(offered) == len(node.outputs), rewriter
            self._results.update(zip(node.outputs, offered, strict=True))
            results = offered
            if offered[0].owner is None:
                break
        return results

    def _is_left_alone(self, var: Variable) -> bool:
        return var.owner is None or hasattr(var.owner, "fgraph") or var.owner in self._unchanged


def _is_candidate(rewriter: LocalOptimizer, node: Apply) -> bool:
    facts = facts_of(rewriter)
    return facts.may_apply(node.op) and (facts.guard is None or facts.guard(node))


PATCHES = [
    Patch(
        module,
        "pre_greedy_local_optimizer",
        pre_greedy_local_optimizer,
        "nodes that did not change are not visited again",
    )
    for module in (opt, scan_opt)
]

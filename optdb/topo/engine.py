"""The rewrite engine: rewrites a FunctionGraph to a fixed point in topological order.

Flow of one :class:`Engine` run::

    worklist ──▶ settle: node and its replacements ───▶ rules ──▶ replacement
       ▲           until no rule applies                            │
       │                                                            ▼
       └── users of changes, operands that lost a user ◀─────── FunctionGraph

A replacement is folded and put into the graph before the next rule runs, so that rules can query clients and shapes.
When the worklist is empty, every node visited before the last change is visited again. A rule that reads only a node's
ancestors is skipped if the ancestors have not changed. A round that changes nothing verifies the fixed point.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Protocol

from optdb.host.api.bookkeeping import order_by_data, reconnect
from optdb.host.api.graph import (
    Apply,
    Constant,
    FunctionGraph,
    InconsistencyError,
    Variable,
    dependencies,
    dependents,
    drop_repeated_traces,
    is_output,
    node_ancestors,
)
from optdb.host.api.replacements import BadReplacement, replacement_pairs
from optdb.topo.limits import GrowthLimits
from optdb.topo.lineage import Lineage
from optdb.topo.order import TopologicalOrder
from optdb.topo.result import PingPong, TopoResult
from optdb.topo.rules import Rule, RuleTable
from optdb.topo.worklist import Worklist

FailureCallback = Callable[[Exception, Sequence[Any], Any, Apply], None]
RewriteCallback = Callable[[Any, Apply, Sequence[tuple[Variable, Variable]]], None]


class Folding(Protocol):
    """The interface for constant folding; the module `optdb.host.api.folding` implements it, if the host has one."""

    def fold_node(self, node: Apply) -> Sequence[Variable] | None:
        """Return constants for the outputs of a node with constant inputs; None if it must not be folded."""

    def fold_replacements(self, fgraph: FunctionGraph, replacements: Sequence[Variable]) -> list[Variable]:
        """Fold the constant parts of replacements before they enter the graph; return the replacements."""

    def is_broadcast(self, node: Apply) -> bool:
        """Return whether a node only permutes or adds axes of its input."""


class CycleError(InconsistencyError):
    """Raised if a replacement would make a node depend on itself."""


class Engine:
    """One run of the rewrite engine over one graph; the run is attached to the graph as a feature.

    Parameters
    ----------
    fgraph : FunctionGraph
        The graph to rewrite in place.
    table : RuleTable
        The node rewriters.
    on_failure : callable
        Called with ``(error, pairs, rewriter, node)`` when a rewriter raises or its replacement is refused; an
        exception raised by the callback ends the run.
    after_change : callable
        Called after each replacement.
    on_rewrite : callable, optional
        Called with ``(rewriter, node, pairs)`` for each replacement that the graph accepted.
    direction : {'out_to_in', 'in_to_out'}
        The end of the graph that is visited first.
    max_use_ratio : float
        The limit on a rule's applications, as a multiple of the number of nodes.
    fold : Folding, optional
        Constant folding; None disables it.
    start_from : sequence of Variable, optional
        Only these variables and their ancestors are rewritten. The default is the whole graph.
    visit_new : bool
        Whether new and changed nodes are visited in the same round.

    Notes
    -----
    ``_clock`` counts changes. ``_seen_at`` holds the clock at which a node's rules were last tried, and ``_rewired_at``
    the clock at which one of its inputs last changed. ``_to_retry`` holds, for each node, the rules that may apply at
    the next visit even if the node's ancestors have not changed. ``_unchanged`` holds the nodes whose ancestors have
    not changed since rules were last tried on the nodes.
    """

    def __init__(
        self,
        fgraph: FunctionGraph,
        table: RuleTable,
        *,
        on_failure: FailureCallback,
        after_change: Callable[[], None],
        direction: str,
        max_use_ratio: float,
        fold: Folding | None,
        start_from: Sequence[Variable] | None = None,
        on_rewrite: RewriteCallback | None = None,
        visit_new: bool = True,
    ) -> None:
        self.fgraph = fgraph
        self.table = table
        self.result = TopoResult(nodes_before=len(fgraph.apply_nodes))
        self.result.nodes_most = self.result.nodes_before
        self._on_failure = on_failure
        self._after_change = after_change
        self._on_rewrite = on_rewrite
        self._limits = GrowthLimits(fgraph.apply_nodes, max_use_ratio)
        self._fold = fold
        self._direction = direction
        self._visit_new = visit_new
        self._scope = None if start_from is None else node_ancestors(start_from)
        self._order = TopologicalOrder(dependencies, partial(dependents, fgraph))
        self._worklist = Worklist(self._order, direction)
        self._lineage = Lineage()
        self._clock = 0
        self._imported = 0
        self._seen_at: dict[Apply, int] = {}
        self._rewired_at: dict[Apply, int] = {}
        self._to_retry: dict[Apply, list[Rule]] = {}
        self._unchanged: set[Apply] = set()
        self._touched: list[Apply] = []
        self._fresh: list[Apply] = []
        #: Nodes with only constant inputs, which are folded before the next rule runs.
        self._constant: deque[Apply] = deque()
        self._backward_edges: list[tuple[Apply, Apply]] = []

    # -- callbacks of the graph

    def on_attach(self, fgraph: FunctionGraph) -> None:
        self._order.extend(order_by_data(fgraph))

    def on_import(self, fgraph: FunctionGraph, node: Apply, reason: Any) -> None:
        self._clock += 1
        self._imported += 1
        self._order.insert(node)
        self._fresh.append(node)

    def on_prune(self, fgraph: FunctionGraph, node: Apply, reason: Any) -> None:
        self._clock += 1
        self._order.remove(node)
        self._worklist.discard(node)
        self._seen_at.pop(node, None)  # if the node is imported again, its ancestors may differ
        for var in node.inputs:
            if var.owner is not None:
                self._touched.append(var.owner)

    def on_change_input(
        self, fgraph: FunctionGraph, node: Apply | str, i: int, old: Variable, new: Variable, reason: Any = None
    ) -> None:
        self._clock += 1
        if old.owner is not None:
            self._touched.append(old.owner)
        if is_output(node):
            return
        self._touched.append(node)
        self._rewired_at[node] = self._clock
        if new.owner is not None and not self._order.add_edge(new.owner, node):
            self._backward_edges.append((new.owner, node))

    def validate(self, fgraph: FunctionGraph) -> None:
        """Raise CycleError if an edge closes a cycle; Theano calls this method."""
        edges, self._backward_edges = self._backward_edges, []
        for first, second in edges:
            still_there = second in self._order and any(var.owner is first for var in second.inputs)
            if still_there and not self._order.add_edge(first, second):
                raise CycleError(f"the replacement makes {second} depend on itself")

    # -- the run

    @property
    def clock(self) -> int:
        """The number of changes so far."""
        return self._clock

    @property
    def imported(self) -> int:
        """The number of nodes that have entered the graph so far."""
        return self._imported

    def toposort(self) -> list[Apply] | None:
        """Return the graph's nodes in topological order, or None in the middle of a replacement."""
        if self._backward_edges or len(self._order) != len(self.fgraph.apply_nodes):
            return None
        return list(self._order)

    def queue_unverified(self) -> None:
        """Queue each node whose rules may now give a different answer than at the node's last visit."""
        nodes = self._with_open_rules() if self._seen_at else self._order.position_of
        if not self._visit_new:  # each round starts at the same end
            self._worklist = Worklist(self._order, self._direction)
        self._worklist.extend(nodes if self._scope is None else self._scope.intersection(nodes))

    def _with_open_rules(self) -> list[Apply]:
        """Return the nodes to visit again, and record the nodes whose ancestors have not changed."""
        clock, rewired_at, seen_at, to_retry = self._clock, self._rewired_at, self._seen_at, self._to_retry
        last_change: dict[Apply, int] = {}
        unchanged, found = self._unchanged, []
        for node in self._order:
            last = rewired_at.get(node, -1)
            may_fold = self._fold is not None
            for var in node.inputs:
                owner = var.owner
                if owner is not None:
                    may_fold = False
                    if last_change[owner] > last:
                        last = last_change[owner]
                elif may_fold and not isinstance(var, Constant):
                    may_fold = False
            last_change[node] = last
            seen = seen_at.get(node, -2)
            if seen == clock:
                continue
            # If all inputs are constants, the decision to fold the node may depend on the node's users.
            if last > seen or may_fold:
                found.append(node)
                continue
            unchanged.add(node)
            if to_retry[node]:
                found.append(node)
        return found

    def fold_all(self) -> None:
        """Fold every constant part of the graph before any rule sees it.

        Otherwise, a rule could decompose a constant expression although its value is nan, or although its value would
        enable another rule. If only non-constant nodes use a broadcast of a constant, the broadcast is folded only when
        it is visited, because some rules do not match the folded copy.
        """
        fold = self._fold
        if fold is None:
            return
        constant: set[Apply] = set()
        for node in self._order:
            if all(isinstance(var, Constant) or var.owner in constant for var in node.inputs):
                constant.add(node)
        self._constant.extend(
            node
            for node in self._order
            if node in constant and not (fold.is_broadcast(node) and constant.isdisjoint(dependents(self.fgraph, node)))
        )
        self._fold_constant()
        self.take_in()

    def drain(self) -> None:
        """Visit queued nodes until none is left.

        Raises
        ------
        LimitExceeded
            If a rule is applied too often or makes the graph too large.
        """
        worklist = self._worklist
        walks = worklist.walks
        while worklist:
            fresh = self._visit(worklist.pop())
            if fresh and self._visit_new:
                self._settle(fresh)
        self.result.walks += worklist.walks - walks

    def take_in(self) -> list[Apply]:
        """Queue the nodes that changed since the last call, and return the new ones."""
        apply_nodes = self.fgraph.apply_nodes
        fresh = [node for node in self._fresh if node in apply_nodes]
        scope = self._scope
        if scope is not None:
            scope.update(fresh)
        touched = [node for node in self._touched if node in apply_nodes and (scope is None or node in scope)]
        if self._fold is not None:
            self._constant.extend(filter(self._is_foldable, touched))
        if self._visit_new:
            self._worklist.extend(touched)
            self._worklist.extend(fresh)
        if touched or fresh:
            self._unchanged.clear()
        self._touched.clear()
        self._fresh.clear()
        self.result.nodes_most = max(self.result.nodes_most, len(apply_nodes))
        return fresh

    def check_limit(self, name: str, uses: int) -> None:
        """Raise LimitExceeded if the rewriter `name` was applied too often, or if the graph has grown too large."""
        self._limits.check_uses(name, uses, self.result.nodes_most)
        nodes = len(self.fgraph.apply_nodes)
        if self._limits.exceeds_node_limit(nodes):
            most = max(self.table.rules, key=lambda rule: rule.nodes_made, default=None)
            raise self._limits.node_limit_exceeded(name if most is None else most.name, nodes)

    def _settle(self, chain: list[Apply]) -> None:
        """Rewrite the nodes of `chain` and their replacements until no rule applies."""
        apply_nodes = self.fgraph.apply_nodes
        while chain:
            node = chain.pop()
            if node in apply_nodes:
                self._worklist.discard(node)
                chain += self._visit(node)

    def _visit(self, node: Apply) -> list[Apply]:
        """Try the rules on `node`; return the new nodes, operands first."""
        self.result.visits += 1
        rules = self._to_retry[node] if node in self._unchanged else self.table.rules_for(node.op)
        self._seen_at[node] = self._clock
        if self._fold is not None and _has_constant_inputs(node) and self._try_fold(node, self._fold):
            return self._absorb()
        fgraph = self.fgraph
        fresh: list[Apply] = []
        to_retry = self._to_retry[node] = []
        for rule in rules:
            rule.attempts += 1
            try:
                if rule.guard is not None and not rule.guard(node):
                    continue
                began = perf_counter()
                replacements = rule.transform(node)
            except Exception as error:  # a rewriter may raise anything
                self._on_failure(error, [(var, None) for var in node.outputs], rule.rewriter, node)
                to_retry.append(rule)
                continue
            # Nearly all attempts end here; `_apply` handles all other results.
            if replacements is None or replacements is False:
                rule.seconds += perf_counter() - began
                if replacements not in rule.lasting_refusals:
                    to_retry.append(rule)
                continue
            to_retry.append(rule)
            applied = self._apply(rule, node, replacements)
            if applied:
                new = self._absorb()
                rule.applications += 1
                rule.nodes_made += len(new)
                self._limits.count_replacement(node, len(new))
                self._watch_for_loops(rule, node, new)
                fresh += new
            rule.seconds += perf_counter() - began
            if applied:
                self.check_limit(rule.name, rule.applications)
                if node not in fgraph.apply_nodes:
                    break
        return fresh

    def _try_fold(self, node: Apply, fold: Folding) -> bool:
        try:
            constants = fold.fold_node(node)
        except Exception as error:  # an op's perform may raise anything
            self._on_failure(error, [(var, None) for var in node.outputs], "constant_folding", node)
            return False
        if constants is None:
            return False
        pairs = list(zip(node.outputs, constants, strict=True))
        if not self._replace(pairs, (), "constant_folding", node):
            return False
        self.result.folded += 1
        return True

    def _apply(self, rule: Rule, node: Apply, replacements: Any) -> bool:
        """Put the replacements of `rule` into the graph; return whether the graph changed."""
        try:
            pairs, remove = replacement_pairs(self.fgraph, rule.rewriter, node, replacements)
        except BadReplacement as error:
            self._on_failure(error, [(var, None) for var in node.outputs], rule.rewriter, node)
            return False
        if not pairs or self._lineage.is_stopped(rule, node):
            return False
        if self._fold is not None:
            new = self._fold.fold_replacements(self.fgraph, [new for _, new in pairs])
            pairs = [(old, new) for (old, _), new in zip(pairs, new, strict=True)]
        return self._replace(pairs, remove, rule.rewriter, node)

    def _replace(
        self, pairs: list[tuple[Variable, Variable]], remove: Sequence[Variable], rewriter: Any, node: Apply
    ) -> bool:
        clock = self._clock
        try:
            self.fgraph.replace_all_validate_remove(pairs, reason=rewriter, remove=remove)
        except Exception as error:  # a type mismatch, a cycle or a feature's veto
            # The graph has been restored, so no node has to be visited again.
            reconnect(self.fgraph, [old for old, _ in pairs])
            self._clock = clock
            self._touched.clear()
            self._fresh.clear()
            self.result.refused += 1
            self._on_failure(error, pairs, rewriter, node)
            return False
        for _, new in pairs:
            drop_repeated_traces([new] if new.owner is None else [new, *new.owner.inputs])
        if self._on_rewrite is not None:
            self._on_rewrite(rewriter, node, pairs)
        return True

    def _absorb(self) -> list[Apply]:
        """Run the cleanup, queue changed nodes, and fold constant nodes; return the new nodes."""
        self._after_change()
        fresh = self.take_in()
        if self._constant:
            fresh += self._fold_constant()
        return fresh

    def _fold_constant(self) -> list[Apply]:
        """Fold the queued constant nodes and the nodes that become constant; return the new nodes."""
        fresh: list[Apply] = []
        while self._constant:
            node = self._constant.popleft()
            if self._fold is not None and node in self.fgraph.apply_nodes and self._try_fold(node, self._fold):
                self._after_change()
                fresh += self.take_in()
        return fresh

    def _is_foldable(self, node: Apply) -> bool:
        return _has_constant_inputs(node) and self._fold is not None and not self._fold.is_broadcast(node)

    def _watch_for_loops(self, rule: Rule, node: Apply, fresh: list[Apply]) -> None:
        undone = self._lineage.replaced(node, rule, fresh)
        if undone is not None:
            self.result.ping_pong.append(PingPong(rule.name, undone.name, str(node)))


def _has_constant_inputs(node: Apply) -> bool:
    for var in node.inputs:  # noqa: SIM110  a loop takes half as long as all() with a generator, in each visit
        if var.owner is not None or not isinstance(var, Constant):
            return False
    return True

"""Rewriting of PyTensor's graphs by optdb's engine: the patches that `optdb.pytensor.enable` installs."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from pytensor.configdefaults import config
from pytensor.graph.features import Feature
from pytensor.graph.rewriting.basic import (
    EquilibriumGraphRewriter,
    MergeOptimizer,
    NodeProcessingGraphRewriter,
    OpToRewriterTracker,
    WalkingGraphRewriter,
)
from pytensor.tensor.rewriting.math import local_greedy_distributor

from optdb.host import pytensor as pytensor_host  # this import makes PyTensor the host, so it comes first
from optdb.host.api.facts import facts_of
from optdb.host.api.graph import Apply, FunctionGraph, PureOp, Variable
from optdb.host.api.patching import Wrapper
from optdb.host.api.rewriters import transform_of
from optdb.host.pytensor import assumptions, constants, distribution, lean, walks
from optdb.host.pytensor.reads import LASTING, ReadsOfGraph
from optdb.topo import destroyer  # noqa: F401  installs its patches
from optdb.topo.engine import CycleError, Engine
from optdb.topo.limits import LimitExceeded
from optdb.topo.passes import EquilibriumPass
from optdb.topo.result import announce
from optdb.topo.rules import Rule, RuleTable

_log = logging.getLogger("pytensor.graph.rewriting.basic")

#: Smaller graphs are left to PyTensor's own equilibrium rewriters, which are faster for small graphs.
LEAST_NODES = 300
#: If sums and products alternate, `local_greedy_distributor` keeps rewriting its own results. After `_DISTRIBUTIONS`
#: applications, plus one for every `_NODES_A_DISTRIBUTION` nodes, the rewriter visits nodes from inputs to outputs
#: instead.
_DISTRIBUTIONS, _NODES_A_DISTRIBUTION = 32, 20


class GraphEngine(Engine, Feature):  # type: ignore[misc]
    """The engine as a feature of PyTensor's graphs."""

    def on_validate(self, fgraph: FunctionGraph) -> None:
        self.validate(fgraph)


class TrackedRules(RuleTable):
    """The rewrite rules for one pass over one graph, looked up in PyTensor's index by op."""

    def __init__(self, fgraph: FunctionGraph, tracker: OpToRewriterTracker) -> None:
        super().__init__(())
        self._tracker = tracker
        self._reads = ReadsOfGraph(fgraph)
        #: How many more times `local_greedy_distributor` may be applied in PyTensor's order.
        self.distributions_left = _DISTRIBUTIONS + len(fgraph.apply_nodes) // _NODES_A_DISTRIBUTION

    def rules_for(self, op: PureOp) -> tuple[Rule, ...]:
        entry = self._by_id.get(id(op))
        if entry is None:
            rewriters = [rewriter for rewriter in self._tracker.get_trackers(op) if facts_of(rewriter).may_apply(op)]
            entry = self._by_id[id(op)] = (op, tuple(map(self._rule, rewriters)))
        return entry[1]

    def _rule(self, rewriter: Any) -> Rule:
        rule = self._rule_of.get(id(rewriter))
        if rule is None:
            of_graph_and_node: Any = transform_of(rewriter)
            transform = self._reads.observed(of_graph_and_node)
            if rewriter is local_greedy_distributor:
                transform = self._while_distributions_are_left(transform)
            rule = self._rule_of[id(rewriter)] = Rule(rewriter, transform)
            if rewriter is local_greedy_distributor:
                rule.guard = distribution.Distributions().may_apply
        return rule

    def _while_distributions_are_left(self, transform: Callable[[Apply], Any]) -> Callable[[Apply], Any]:
        def transform_node(node: Apply) -> Any:
            if not self.distributions_left:
                return LASTING
            replacements = transform(node)
            if replacements:
                self.distributions_left -= 1
            return replacements

        return transform_node


class EnginePass(EquilibriumPass):
    """One pass in which the engine brings a graph to equilibrium, in rounds of global, node and final rewriters.

    If `start_from` is given, only those variables and their ancestors are rewritten.
    """

    def __init__(
        self, equilibrium: EquilibriumGraphRewriter, fgraph: FunctionGraph, start_from: Sequence[Variable] | None
    ) -> None:
        super().__init__(fgraph, equilibrium, equilibrium.cleanup_rewriters, MergeOptimizer)
        self.equilibrium = equilibrium
        self.rules = TrackedRules(fgraph, equilibrium.node_tracker)
        self.engine = GraphEngine(
            fgraph,
            self.rules,
            on_failure=self._report,
            after_change=self._clean_up,
            direction="out_to_in",
            max_use_ratio=equilibrium.max_use_ratio,
            fold=None,
            start_from=start_from,
            visit_new=not equilibrium.ignore_newtrees,
        )

    def execute(self) -> tuple[Any, ...]:
        """Rewrite the graph, and return a profile like that of an equilibrium rewriter."""
        result = self.engine.result
        start = perf_counter()
        self.fgraph.attach_feature(self.engine)
        try:
            self._rounds()
            result.converged = not result.ping_pong
            result.reason = str(result.ping_pong[0]) if result.ping_pong else ""
        except LimitExceeded as limit:
            result.reason = str(limit)
            self._report_limit(limit)
        finally:
            self.fgraph.remove_feature(self.engine)
            result.name = getattr(self.equilibrium, "name", None)
            result.nodes_after = len(self.fgraph.apply_nodes)
            result.seconds = perf_counter() - start
            result.count(self.rules.rules)
            announce(result)
        return self.profile.finish(result, self.rules.rules)[:-1]

    def _rounds(self) -> None:
        engine = self.engine
        while True:
            clock = engine.clock
            engine.result.rounds += 1
            self.profile.begin_round(len(self.fgraph.apply_nodes))
            self._clean_up(always=True)
            self.profile.global_profiles(self._run_all(self.equilibrium.global_rewriters))
            engine.queue_unverified()
            engine.drain()
            if not self.rules.distributions_left:
                self._run_all([_DISTRIBUTING])
            self.profile.final_profiles(self._run_all(self.equilibrium.final_rewriters))
            self.profile.end_round(self.rules.rules)
            if engine.clock == clock:
                return

    def _report(self, error: Exception, pairs: Sequence[Any], rewriter: Any, node: Apply) -> None:
        """Pass a failure to the equilibrium rewriter's callback, and report a cycle as an error."""
        callback = self.equilibrium.failure_callback
        if callback is None:
            raise error
        if isinstance(error, CycleError):  # the usual callback ignores failures of in-place rewriters
            callback = NodeProcessingGraphRewriter.warn
        callback(error, self.equilibrium, pairs, rewriter, node)

    def _report_limit(self, limit: LimitExceeded) -> None:
        message = (
            f"{type(self.equilibrium).__name__} max'ed out by {limit.rewriter}. You can safely raise the current "
            f"threshold of {config.optdb__max_use_ratio} with the option `optdb__max_use_ratio`. "
            f"The rewriter {limit.reason}."
        )
        if config.on_opt_error == "raise":
            raise AssertionError(message)
        _log.error(message)


#: Applies `local_greedy_distributor` from inputs to outputs.
_DISTRIBUTING = WalkingGraphRewriter(
    local_greedy_distributor,
    order="in_to_out",
    ignore_newtrees=False,
    failure_callback=NodeProcessingGraphRewriter.warn_inplace,
)


def _by_the_engine(apply: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(apply)
    def apply_by_size(self: EquilibriumGraphRewriter, fgraph: FunctionGraph, start_from: Any = None) -> Any:
        if len(fgraph.apply_nodes) < LEAST_NODES:
            return apply(self, fgraph, start_from)
        return EnginePass(self, fgraph, start_from).execute()

    return apply_by_size


pytensor_host.patches.patches += [
    *lean.PATCHES,
    *walks.PATCHES,
    *distribution.PATCHES,
    *assumptions.PATCHES,
    *constants.PATCHES,
    Wrapper(EquilibriumGraphRewriter, "apply", _by_the_engine, "the engine rewrites large graphs"),
]

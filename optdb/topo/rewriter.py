"""TopoRewriter: the engine as a graph rewriter that Theano can run, print and profile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, TextIO

from optdb import trace_log
from optdb.host.api import folding
from optdb.host.api.bookkeeping import kept_order, nodes_by_op
from optdb.host.api.config import config, logger
from optdb.host.api.graph import Apply, FunctionGraph, Variable
from optdb.host.api.replacements import name_of
from optdb.host.api.rewriters import (
    EquilibriumOptimizer,
    LocalOptGroup,
    MergeOptimizer,
    NavigatorOptimizer,
    TopoOptimizer,
    report_failure,
)
from optdb.host.api.session import optimizing
from optdb.topo.engine import CycleError, Engine
from optdb.topo.limits import LimitExceeded
from optdb.topo.merge import MergeIndex
from optdb.topo.onepass import is_idle
from optdb.topo.passes import EquilibriumPass
from optdb.topo.result import TopoResult, announce
from optdb.topo.rules import RuleTable
from optdb.topo.worklist import DIRECTIONS

#: The direction that gives better results in Theano's own tests; see docs/engine.md.
DEFAULT_DIRECTION = "out_to_in"


class TopoRewriter(EquilibriumOptimizer):
    """An EquilibriumOptimizer that rewrites a graph to a fixed point in topological order.

    Parameters
    ----------
    rewriters : sequence
        Node rewriters, and graph rewriters that run at the start of each round.
    direction : {'out_to_in', 'in_to_out'}
        Whether the visits start at the outputs or at the inputs.
    max_use_ratio : float, optional
        The limit on a rewriter's applications, as a multiple of the number of nodes; ``config.optdb.max_use_ratio`` by
        default.
    final_rewriters : sequence, optional
        Graph rewriters that run at the end of each round. Theano's constant folding is left out, because the engine
        folds.
    cleanup_rewriters : sequence, optional
        Graph rewriters that run after each replacement.
    failure_callback : callable, optional
        A callback as for NavigatorOptimizer; by default, failures are handled according to ``config.on_opt_error``.

    Attributes
    ----------
    result : TopoResult or None
        The result of the last run.
    """

    def __init__(
        self,
        rewriters: Sequence[Any],
        *,
        direction: str = DEFAULT_DIRECTION,
        max_use_ratio: float | None = None,
        final_rewriters: Sequence[Any] = (),
        cleanup_rewriters: Sequence[Any] = (),
        failure_callback: Callable[..., None] | None = NavigatorOptimizer.warn_inplace,
        name: str | None = None,
    ) -> None:
        if direction not in DIRECTIONS:
            raise ValueError(f"direction must be one of {DIRECTIONS}, not {direction!r}")
        if max_use_ratio is None:
            max_use_ratio = config.optdb.max_use_ratio
        super().__init__(
            list(rewriters),
            failure_callback=failure_callback,
            ignore_newtrees=False,
            max_use_ratio=max_use_ratio,
            final_optimizers=[r for r in final_rewriters if not folding.is_folding_pass(r)],
            cleanup_optimizers=list(cleanup_rewriters),
        )
        self.folds = len(self.final_optimizers) < len(final_rewriters)
        self.direction = direction
        self.name = name
        self.result: TopoResult | None = None

    @classmethod
    def from_equilibrium(cls, stock: EquilibriumOptimizer) -> TopoRewriter:
        """Make a rewriter with the members and limits of `stock`, an EquilibriumOptimizer from Theano."""
        rewriter = cls(
            stock.global_optimizers,
            max_use_ratio=stock.max_use_ratio,
            final_rewriters=stock.final_optimizers,
            cleanup_rewriters=stock.cleanup_optimizers,
            failure_callback=stock.failure_callback,
            name=getattr(stock, "name", None),
        )
        # Each query builds a new index, so this one needs no copy. For each op, the index lists the rewriters in the
        # order of their registration.
        rewriter.local_optimizers_all = stock.local_optimizers_all
        rewriter.local_optimizers_map = stock.local_optimizers_map
        return rewriter

    @classmethod
    def from_topo(cls, stock: TopoOptimizer) -> TopoRewriter:
        """Make a rewriter with the node rewriters of Theano's one-pass TopoOptimizer."""
        group = stock.local_opt
        members = group.opts if isinstance(group, LocalOptGroup) else [group]
        return cls(
            members, direction=stock.order, failure_callback=stock.failure_callback, name=getattr(stock, "name", None)
        )

    def add_requirements(self, fgraph: FunctionGraph) -> None:
        """Attach the features that the rewriters need, starting with the merge index."""
        merges = any(isinstance(r, MergeOptimizer) for r in self.cleanup_optimizers)
        if merges and not hasattr(fgraph, "merge_feature"):
            fgraph.attach_feature(MergeIndex())
        super().add_requirements(fgraph)

    def apply(self, fgraph: FunctionGraph, start_from: Sequence[Variable] | None = None) -> tuple[Any, ...]:
        """Rewrite `fgraph`, or the ancestors of `start_from`, in place; return Theano's profile and a TopoResult."""
        with optimizing():
            return _RewritePass(self, fgraph, start_from).execute()

    @staticmethod
    def print_profile(stream: TextIO, prof: tuple[Any, ...], level: int = 0) -> None:
        """Print the profile that `apply` returned, with the engine's statistics last."""
        *stock, result = prof
        EquilibriumOptimizer.print_profile(stream, tuple(stock), level)
        print(" " * (4 * level), f"  engine: {result}", file=stream)
        for loop in result.ping_pong:
            print(" " * (4 * level), f"  {loop}", file=stream)

    @staticmethod
    def merge_profile(prof1: tuple[Any, ...], prof2: tuple[Any, ...]) -> tuple[Any, ...]:
        """Add two profiles."""
        *stock1, result1 = prof1
        *stock2, result2 = prof2
        merged = EquilibriumOptimizer.merge_profile(tuple(stock1), tuple(stock2))
        return (*merged, result1 + result2)


def _op_names(node: Apply | None) -> tuple[str, ...]:
    """Return the names by which optdb.trace selects a node: the text and the class of its op, and of its scalar op."""
    if node is None:
        return ()
    op = node.op
    scalar = getattr(op, "scalar_op", None)
    return (str(op), type(op).__name__, *(() if scalar is None else (str(scalar), type(scalar).__name__)))


class _RewritePass(EquilibriumPass):
    def __init__(self, rewriter: TopoRewriter, fgraph: FunctionGraph, start_from: Sequence[Variable] | None) -> None:
        super().__init__(fgraph, rewriter, rewriter.cleanup_optimizers, MergeOptimizer)
        self.rewriter = rewriter
        self._has_rules = bool(rewriter.local_optimizers_all or rewriter.local_optimizers_map or rewriter.folds)
        self.engine = Engine(
            fgraph,
            RuleTable.indexed(rewriter.local_optimizers_all, rewriter.local_optimizers_map),
            on_failure=self._report,
            after_change=self._clean_up,
            direction=rewriter.direction,
            max_use_ratio=rewriter.max_use_ratio,
            fold=folding if rewriter.folds else None,
            start_from=start_from,
            on_rewrite=self._trace_rewrite if trace_log.wants("rewrites") else None,
        )

    def execute(self) -> tuple[Any, ...]:
        result = self.engine.result
        result.name = self.rewriter.name
        start = perf_counter()
        try:
            if self._is_idle():
                self._idle_round()
            else:
                self.fgraph.attach_feature(self.engine)
                with kept_order(self.fgraph, self.engine.toposort):
                    self._rounds()
            result.converged = not result.ping_pong
            if result.ping_pong:
                result.reason = str(result.ping_pong[0])
        except LimitExceeded as limit:
            result.reason = str(limit)
            self._report_limit(limit)
        finally:
            self.fgraph.remove_feature(self.engine)
            result.nodes_after = len(self.fgraph.apply_nodes)
            result.seconds = perf_counter() - start
            result.count(self.engine.table.rules)
            self.rewriter.result = result
            self._trace(result)
            announce(result)
        return self.profile.finish(result, self.engine.table.rules)

    def _is_idle(self) -> bool:
        """Return whether no node rewriter applies and all global graph rewriters are idle."""
        rewriter = self.rewriter
        if rewriter.folds or rewriter.final_optimizers or rewriter.cleanup_optimizers:
            return False
        return not self._has_rules_here() and all(is_idle(member, self.fgraph) for member in rewriter.global_optimizers)

    def _has_rules_here(self) -> bool:
        if not self._has_rules:
            return False
        grouped = nodes_by_op(self.fgraph).values()
        return any(self.engine.table.may_track(nodes[0].op) for nodes_of in grouped for nodes in nodes_of.values())

    def _idle_round(self) -> None:
        """Run the idle graph rewriters, because Theano's report requires a profile of each rewriter."""
        self.engine.result.rounds += 1
        self.profile.begin_round(len(self.fgraph.apply_nodes))
        self.profile.global_profiles(self._run_all(self.rewriter.global_optimizers))
        self.profile.end_round([])

    def _rounds(self) -> None:
        engine = self.engine
        while True:
            clock = engine.clock
            engine.result.rounds += 1
            self.profile.begin_round(len(self.fgraph.apply_nodes))
            # Theano's report requires each cleanup's profile in each round.
            self._clean_up(always=True)
            if engine.result.rounds == 1:
                engine.fold_all()
            self.profile.global_profiles(self._run_all(self.rewriter.global_optimizers))
            if self._has_rules:
                engine.queue_unverified()
                engine.drain()
            self.profile.final_profiles(self._run_all(self.rewriter.final_optimizers))
            self.profile.end_round(engine.table.rules)
            if engine.clock == clock:
                return

    def _report(self, error: Exception, pairs: Sequence[Any], rewriter: Any, node: Apply) -> None:
        """Pass a failure to the rewriter's callback, and report a cycle as an error."""
        callback = self.rewriter.failure_callback
        if callback is None:
            raise error
        if isinstance(error, CycleError) and callback is NavigatorOptimizer.warn_inplace:
            # This callback ignores InconsistencyErrors, which in-place rewriters cause by design; but a cycle is a bug.
            report_failure(error, self.rewriter, pairs, rewriter, node)
            return
        callback(error, self.rewriter, pairs, rewriter, node)

    def _report_limit(self, limit: LimitExceeded) -> None:
        message = (
            f"EquilibriumOptimizer max'ed out by '{limit.rewriter}'. You can safely raise the current "
            f"threshold of {self.rewriter.max_use_ratio:f} with the theano flag "
            f"'optdb.max_use_ratio'. The rewriter {limit.reason}."
        )
        if config.on_opt_error == "raise":
            raise AssertionError(message)
        logger.error(message)

    def _trace_rewrite(self, rewriter: Any, node: Apply, pairs: Sequence[tuple[Variable, Variable]]) -> None:
        names = (name_of(rewriter), *_op_names(node), *(name for _, new in pairs for name in _op_names(new.owner)))
        if not trace_log.wants("rewrites", *names):
            return
        replacement = ", ".join(str(new.owner or new) for _, new in pairs)
        trace_log.write(f"{self.engine.result.phase} {name_of(rewriter)} {node} -> {replacement}")

    def _trace(self, result: TopoResult) -> None:
        for loop in result.ping_pong:
            logger.error("%s: %s", result.phase, loop)
        if trace_log.wants("phases"):
            trace_log.write(str(result))

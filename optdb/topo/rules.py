"""Dispatch of rewriters to nodes, by op and by op class."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from optdb.host.api.facts import facts_of, in_order_of_precedence
from optdb.host.api.graph import Apply, PureOp
from optdb.host.api.replacements import name_of
from optdb.host.api.rewriters import LocalOptimizer, transform_of


class Rule:
    """A node rewriter and its statistics in one run.

    Attributes
    ----------
    guard : callable, or None
        A cheap test of whether `transform` may apply to a node; once it is False for a node, it remains False.
    transform : callable
        A function that returns the rewriter's replacements for a node.
    lasting_refusals : tuple
        Those of the values None and False that are final: after `transform` has returned a final value for a node, it
        declines the node until an ancestor of the node changes.
    attempts, applications, nodes_made : int
        How often the rule was tried, how often it changed the graph, and how many nodes it added.
    seconds : float
        Wall-clock time spent in `transform` and in making the replacements.
    """

    __slots__ = (
        *("applications", "attempts", "guard", "lasting_refusals", "name", "nodes_made", "rewriter"),
        *("seconds", "transform"),
    )

    def __init__(self, rewriter: LocalOptimizer, transform: Callable[[Apply], Any]) -> None:
        self.rewriter = rewriter
        self.name = name_of(rewriter)
        facts = facts_of(rewriter)
        self.guard = facts.guard
        self.transform = transform
        self.lasting_refusals = facts.lasting_refusals()
        self.attempts = 0
        self.applications = 0
        self.nodes_made = 0
        self.seconds = 0.0

    def __repr__(self) -> str:
        return f"Rule({self.name})"


class RuleTable:
    """Rules indexed by the ops that they track; each op is hashed and compared only once.

    For each node, the order is Theano's: rewriters without tracks, then rewriters that track the op's class (not a base
    class), then rewriters that track the op itself. There is one exception: rewriters that replace a node by zero come
    before rewriters that move the node. Rewriters that are known to decline a tracked op are left out.
    """

    def __init__(self, rewriters: Iterable[LocalOptimizer]) -> None:
        untracked: list[LocalOptimizer] = []
        tracked: dict[Any, list[LocalOptimizer]] = {}
        for rewriter in rewriters:
            tracks = rewriter.tracks()
            if tracks is None:
                untracked.append(rewriter)
                continue
            for track in tracks:
                tracked.setdefault(track, []).append(rewriter)
        self._fill(untracked, tracked)

    @classmethod
    def indexed(cls, untracked: list[LocalOptimizer], tracked: dict[Any, list[LocalOptimizer]]) -> RuleTable:
        """Make a table from rewriters that are already indexed, as in Theano's equilibriums."""
        table = cls.__new__(cls)
        table._fill(untracked, tracked)
        return table

    def _fill(self, untracked: list[LocalOptimizer], tracked: dict[Any, list[LocalOptimizer]]) -> None:
        self._untracked = untracked
        self._tracked = tracked
        # Rules are created on demand, since a small graph needs only a few of the several hundred rewriters.
        self._rule_of: dict[int, Rule] = {}
        self._by_class: dict[type[PureOp], list[tuple[LocalOptimizer, Callable[[PureOp], bool] | None]]] = {}
        # Each entry keeps its op alive, so that the op's id is not reused.
        self._by_id: dict[int, tuple[PureOp, tuple[Rule, ...]]] = {}

    @property
    def rules(self) -> list[Rule]:
        """All rules that the table has returned so far, in order."""
        return list(self._rule_of.values())

    def may_track(self, op: PureOp) -> bool:
        """Return, without creating any rule, whether a rule may track `op`."""
        return op in self._tracked or any(asks is None or asks(op) for _, asks in self._of_class(type(op)))

    def rules_for(self, op: PureOp) -> tuple[Rule, ...]:
        """Return the rules to try on a node that applies `op`."""
        entry = self._by_id.get(id(op))
        if entry is not None:
            return entry[1]
        rewriters = [rewriter for rewriter, asks in self._of_class(type(op)) if asks is None or asks(op)]
        rewriters += [rewriter for rewriter in self._tracked.get(op, ()) if facts_of(rewriter).may_apply(op)]
        rules = tuple(map(self._rule, in_order_of_precedence(rewriters)))
        self._by_id[id(op)] = (op, rules)
        return rules

    def _of_class(self, cls: type[PureOp]) -> list[tuple[LocalOptimizer, Callable[[PureOp], bool] | None]]:
        """Return the rewriters for ops of class `cls`, each with a predicate that selects ops, or None for all ops."""
        rewriters = self._by_class.get(cls)
        if rewriters is None:
            tracking = (*self._untracked, *self._tracked.get(cls, ()))
            rewriters = self._by_class[cls] = [(rewriter, facts_of(rewriter).tracks) for rewriter in tracking]
        return rewriters

    def _rule(self, rewriter: LocalOptimizer) -> Rule:
        rule = self._rule_of.get(id(rewriter))
        if rule is None:
            rule = self._rule_of[id(rewriter)] = Rule(rewriter, transform_of(rewriter))
        return rule

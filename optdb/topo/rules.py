"""Which rewriters to try on which node: dispatch by op and by op class.

A :class:`Rule` is a node rewriter with its counters; a :class:`RuleTable`
answers "which rules track this op?", and remembers the answer per op object,
so that neither the op's hash nor its equality is computed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from optdb.host.graph import Op
from optdb.host.rewriters import LocalOptimizer, name_of, transform_of


class Rule:
    """A node rewriter and what it did in one run.

    Attributes
    ----------
    transform : callable
        ``transform(fgraph, node)``.
    attempts, applications, nodes_made : int
        How often it was tried, how often it changed the graph, and how many
        nodes its replacements brought in.
    seconds : float
        Wall-clock time inside `transform` and the replacement.
    """

    __slots__ = (
        "applications",
        "attempts",
        "name",
        "nodes_made",
        "rewriter",
        "seconds",
        "transform",
    )

    def __init__(self, rewriter: LocalOptimizer) -> None:
        self.rewriter = rewriter
        self.name = name_of(rewriter)
        self.transform = transform_of(rewriter)
        self.attempts = 0
        self.applications = 0
        self.nodes_made = 0
        self.seconds = 0.0

    def __repr__(self) -> str:
        return f"Rule({self.name})"


class RuleTable:
    """Rules indexed by the ops that they track.

    The order for a node is Theano's: first the rewriters without tracks, then
    those that track the op's class, then those that track the op itself, each
    in the order given. A class is matched exactly, not by inheritance, as
    Theano matches it.
    """

    def __init__(self, rewriters: Iterable[LocalOptimizer]) -> None:
        self.rules = [Rule(rewriter) for rewriter in rewriters]
        self._untracked: list[Rule] = []
        self._tracked: dict[Any, list[Rule]] = {}
        for rule in self.rules:
            tracks = rule.rewriter.tracks()
            if tracks is None:
                self._untracked.append(rule)
                continue
            for track in tracks:
                self._tracked.setdefault(track, []).append(rule)
        # The op is kept with its rules: its id stays its own that way.
        self._by_id: dict[int, tuple[Op, tuple[Rule, ...]]] = {}

    def rules_for(self, op: Op) -> tuple[Rule, ...]:
        """Return the rules to try on a node of `op`."""
        known = self._by_id.get(id(op))
        if known is not None:
            return known[1]
        rules = (
            *self._untracked,
            *self._tracked.get(type(op), ()),
            *self._tracked.get(op, ()),
        )
        self._by_id[id(op)] = (op, rules)
        return rules

"""Runs an equilibrium's graph rewriters before and after the engine, and collects statistics in the host's format."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from optdb.host.api.graph import FunctionGraph
from optdb.host.api.replacements import name_of
from optdb.topo.engine import Engine
from optdb.topo.result import TopoResult
from optdb.topo.rules import Rule


class PhaseProfile:
    """The profile of one run on a graph that has `nodes` apply nodes at the start."""

    def __init__(self, rewriter: Any, cleanups: Sequence[Any], nodes: int) -> None:
        self.rewriter = rewriter
        self._cleanup_rewriters = cleanups
        self.nodes_before = nodes
        self.round_seconds: list[float] = []
        self.round_counts: list[dict[Any, int]] = []
        self.global_seconds: list[float] = []
        self.round_nodes: list[int] = []
        self.seconds: dict[Any, float] = defaultdict(float)
        self.made: dict[Any, int] = defaultdict(int)
        self.globals: list[list[Any]] = []
        self.finals: list[list[Any]] = []
        self.cleanups: list[list[Any]] = []
        self._applied: dict[Rule, int] = defaultdict(int)
        self._round_cleanups: dict[Any, Any] = {}
        self._start = perf_counter()

    def begin_round(self, nodes: int) -> None:
        """Start a round on a graph of `nodes` apply nodes."""
        self._start = perf_counter()
        self.round_nodes.append(nodes)
        self.round_counts.append({})
        self.global_seconds.append(0.0)
        self.globals.append([])
        self.finals.append([])
        self._round_cleanups = {}

    def global_profiles(self, profiles: list[Any]) -> None:
        """Record the profiles of the round's global rewriters."""
        self.globals[-1] = profiles
        self.global_seconds[-1] += perf_counter() - self._start

    def final_profiles(self, profiles: list[Any]) -> None:
        """Record the profiles of the round's final rewriters."""
        self.finals[-1] = profiles

    def count(self, rewriter: Any, *, seconds: float, changed: bool, made: int) -> None:
        """Count one call of a graph rewriter."""
        self.seconds[rewriter] += seconds
        if changed:
            counts = self.round_counts[-1]
            counts[rewriter] = counts.get(rewriter, 0) + 1
            self.made[rewriter] += made

    def keep_cleanup(self, rewriter: Any, profile: Any) -> None:
        """Merge a cleanup's profile with its earlier profiles from this round."""
        previous = self._round_cleanups.get(rewriter)
        if previous is not None:
            profile = rewriter.merge_profile(previous, profile)
        self._round_cleanups[rewriter] = profile

    def end_round(self, rules: list[Rule]) -> None:
        """End the round, and count the applications of `rules` in it."""
        self.round_seconds.append(perf_counter() - self._start)
        counts = self.round_counts[-1]
        for rule in rules:
            applied = rule.applications - self._applied[rule]
            if applied:
                counts[rule.rewriter] = applied
                self._applied[rule] = rule.applications
        self.cleanups.append(
            [self._round_cleanups[rewriter] for rewriter in self._cleanup_rewriters if rewriter in self._round_cleanups]
        )

    def finish(self, result: TopoResult, rules: list[Rule]) -> tuple[Any, ...]:
        """Return the twelve statistics of the host's profiles, followed by the engine's `result`."""
        if len(self.round_seconds) < len(self.round_counts):  # stopped in the middle of a round
            self.end_round(rules)
        for rule in rules:
            self.seconds[rule.rewriter] += rule.seconds
            self.made[rule.rewriter] += rule.nodes_made
        return (
            self.rewriter,
            self.round_seconds,
            self.round_counts,
            (self.nodes_before, result.nodes_after, result.nodes_most),
            self.global_seconds,
            self.round_nodes,
            self.seconds,
            [0.0] * len(self.round_seconds),  # no sorting time: the order is maintained incrementally
            self.made,
            self.globals,
            self.finals,
            self.cleanups,
            result,
        )


class EquilibriumPass:
    """Runs an equilibrium's graph rewriters on one graph, and the cleanup rewriters after each change.

    A subclass creates `engine`, and passes `_clean_up` to it as `after_change`.

    Parameters
    ----------
    fgraph : FunctionGraph
        The graph to rewrite in place.
    equilibrium : object
        The host's equilibrium.
    cleanups : sequence
        The graph rewriters that run after each replacement.
    merger : type
        The class of merge rewriters, which are skipped if no merge is scheduled.
    """

    engine: Engine

    def __init__(self, fgraph: FunctionGraph, equilibrium: Any, cleanups: Sequence[Any], merger: type) -> None:
        self.fgraph = fgraph
        self.profile = PhaseProfile(equilibrium, cleanups, len(fgraph.apply_nodes))
        self._cleanups = cleanups
        self._merger = merger
        self._uses: Counter[Any] = Counter()

    def _run_all(self, rewriters: Sequence[Any]) -> list[Any]:
        """Run graph rewriters one after the other, and then the cleanup."""
        if not rewriters:
            return []
        profiles = []
        for rewriter in rewriters:
            profile, changed = self._run_one(rewriter)
            profiles.append(profile)
            if changed:
                self._uses[rewriter] += 1
                self.engine.check_limit(name_of(rewriter), self._uses[rewriter])
        self._clean_up()
        self.engine.take_in()
        return profiles

    def _clean_up(self, always: bool = False) -> None:
        for rewriter in self._cleanups:
            nothing_to_merge = isinstance(rewriter, self._merger) and not self.fgraph.merge_feature.scheduled
            if nothing_to_merge and not always:
                continue
            profile, _ = self._run_one(rewriter)
            self.profile.keep_cleanup(rewriter, profile)

    def _run_one(self, rewriter: Any) -> tuple[Any, bool]:
        clock, imported = self.engine.clock, self.engine.imported
        start = perf_counter()
        profile = rewriter.apply(self.fgraph)
        changed = self.engine.clock != clock
        made = self.engine.imported - imported
        self.profile.count(rewriter, seconds=perf_counter() - start, changed=changed, made=made)
        return profile, changed

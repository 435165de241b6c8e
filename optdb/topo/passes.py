"""The graph rewriters of an equilibrium, run around the engine, for any host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from optdb.host.api.graph import FunctionGraph
from optdb.host.api.replacements import name_of
from optdb.topo.engine import Engine
from optdb.topo.profile import PhaseProfile


class EquilibriumPass:
    """One equilibrium over one graph: its graph rewriters, and the cleanup after each change.

    A subclass creates `engine`, with `_clean_up` as its `after_change`.

    Parameters
    ----------
    fgraph : FunctionGraph
        The graph to rewrite in place.
    equilibrium : object
        The host's equilibrium.
    cleanups : sequence
        The equilibrium's graph rewriters that run after each replacement.
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
        """Run graph rewriters in turn, and then the cleanup."""
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
        """Run and count one graph rewriter; return its profile, and whether it changed the graph."""
        clock, imported = self.engine.clock, self.engine.imported
        start = perf_counter()
        profile = rewriter.apply(self.fgraph)
        changed = self.engine.clock != clock
        made = self.engine.imported - imported
        self.profile.count(rewriter, seconds=perf_counter() - start, changed=changed, made=made)
        return profile, changed

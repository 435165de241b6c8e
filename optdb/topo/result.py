"""The statistics of one run of the engine, and whether it reached a fixed point."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from optdb.topo.rules import Rule

#: The name in messages for several phases, or for a phase whose database has no name because it was not registered in
#: another database.
UNNAMED = "(unnamed)"


class PingPong(NamedTuple):
    """Two rules that undo each other: `rule` makes `node`, and `undone_by` replaces it. `undone_by` was stopped."""

    rule: str
    undone_by: str
    node: str

    def __str__(self) -> str:
        return f"{self.rule} and {self.undone_by} undo each other at {self.node}"


class RuleCount(NamedTuple):
    """One rewriter's statistics: see :class:`~optdb.topo.rules.Rule`."""

    name: str
    attempts: int
    applications: int
    nodes_made: int
    seconds: float

    def plus(self, other: RuleCount) -> RuleCount:
        """Add the statistics of another run of the same rewriter."""
        return RuleCount(
            self.name,
            self.attempts + other.attempts,
            self.applications + other.applications,
            self.nodes_made + other.nodes_made,
            self.seconds + other.seconds,
        )


@dataclass
class TopoResult:
    """The statistics of one engine run.

    Attributes
    ----------
    name : str or None
        The name of the phase's database.
    converged : bool
        Whether no rewriter applies to any node of the graph.
    reason : str
        The reason for stopping, if the run did not converge.
    nodes_before, nodes_after, nodes_most : int
        The number of apply nodes at the start, the number at the end, and the largest number in between.
    visits : int
        The number of visits to nodes, including visits to new nodes right after a replacement.
    walks : int
        How often the worklist walked over the graph from one end to the other.
    rounds : int
        The number of rounds; each round runs the global rewriters, the worklist and the final rewriters.
    refused : int
        The number of replacements that the graph did not accept.
    folded : int
        The number of nodes that were folded to constants.
    rules : list of RuleCount
        One entry for each rewriter that tracks an op of the graph.
    ping_pong : list of PingPong
        Pairs of rewriters that undid each other; one rewriter of each pair was stopped.
    seconds : float
        Wall-clock time of the whole run.
    """

    name: str | None = None
    converged: bool = False
    reason: str = ""
    nodes_before: int = 0
    nodes_after: int = 0
    nodes_most: int = 0
    visits: int = 0
    walks: int = 0
    rounds: int = 0
    refused: int = 0
    folded: int = 0
    rules: list[RuleCount] = field(default_factory=list)
    ping_pong: list[PingPong] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def phase(self) -> str:
        """The name of the phase's database, for messages."""
        return self.name or UNNAMED

    @property
    def attempts(self) -> int:
        """The number of times that rewriters were tried on nodes."""
        return sum(rule.attempts for rule in self.rules)

    @property
    def applications(self) -> int:
        """The number of times that rewriters changed the graph."""
        return sum(rule.applications for rule in self.rules)

    @property
    def nodes_made(self) -> int:
        """The number of nodes that replacements added."""
        return sum(rule.nodes_made for rule in self.rules)

    def count(self, rules: list[Rule]) -> None:
        """Copy the rules' counters."""
        self.rules = [RuleCount(r.name, r.attempts, r.applications, r.nodes_made, r.seconds) for r in rules]

    def __add__(self, other: TopoResult) -> TopoResult:
        """Add the statistics of two runs."""
        counts: dict[str, RuleCount] = {rule.name: rule for rule in self.rules}
        for rule in other.rules:
            count = counts.get(rule.name, RuleCount(rule.name, 0, 0, 0, 0.0))
            counts[rule.name] = count.plus(rule)
        return TopoResult(
            name=self.name if self.name == other.name else None,
            converged=self.converged and other.converged,
            reason=self.reason or other.reason,
            nodes_before=self.nodes_before + other.nodes_before,
            nodes_after=self.nodes_after + other.nodes_after,
            nodes_most=max(self.nodes_most, other.nodes_most),
            visits=self.visits + other.visits,
            walks=self.walks + other.walks,
            rounds=self.rounds + other.rounds,
            refused=self.refused + other.refused,
            folded=self.folded + other.folded,
            rules=list(counts.values()),
            ping_pong=self.ping_pong + other.ping_pong,
            seconds=self.seconds + other.seconds,
        )

    def __str__(self) -> str:
        end = "converged" if self.converged else f"stopped: {self.reason}"
        return (
            f"{self.phase}: {end} after {self.rounds} rounds, {self.walks} walks; "
            f"nodes {self.nodes_before} -> {self.nodes_after}; "
            f"{self.visits} visits, {self.attempts} attempts, "
            f"{self.applications} applications, {self.nodes_made} nodes made, "
            f"{self.folded} folded, {self.refused} refused; {self.seconds:.3f} s"
        )


class _Listeners(threading.local):
    def __init__(self) -> None:
        self.lists: list[list[TopoResult]] = []


_listeners = _Listeners()


@contextmanager
def collect() -> Iterator[list[TopoResult]]:
    """Collect the results of every engine run in this thread, in order.

    Examples
    --------
    >>> with optdb.topo.collect() as results:      # doctest: +SKIP
    ...     f = theano.function([x], y)
    >>> all(result.converged for result in results)    # doctest: +SKIP
    True
    """
    results: list[TopoResult] = []
    _listeners.lists.append(results)
    try:
        yield results
    finally:
        # Compare by identity: another active list may have equal contents.
        _listeners.lists = [listening for listening in _listeners.lists if listening is not results]


def announce(result: TopoResult) -> None:
    """Append `result` to the list of each active :func:`collect` in this thread."""
    for results in _listeners.lists:
        results.append(result)

"""What a lift did to each node, as text that outlives the graph that was lifted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from optdb.host.graph import FunctionGraph


@dataclass(frozen=True)
class NodeReport:
    """What became of one node.

    Parameters
    ----------
    op : str
        The host's op.
    context_name : str or None
        Where the node went; None where it stayed, or where the default context has no name.
    lifter : str or None
        Who lifted it; None if it stayed.
    reason : str or None
        Why it stayed.
    """

    op: str
    context_name: str | None
    lifter: str | None
    reason: str | None


@dataclass(frozen=True)
class LiftReport:
    """What a lift did.

    Parameters
    ----------
    device : str
        Name of the device.
    nodes : list of NodeReport
        In topological order; transfers are not among them.
    seconds : float
        Wall-clock time of the lift.
    """

    device: str
    nodes: list[NodeReport] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def lifted(self) -> int:
        """How many nodes went to the device."""
        return sum(node.lifter is not None for node in self.nodes)

    def by_lifter(self) -> Counter[tuple[str, str]]:
        """Count the nodes that went, by op and lifter."""
        return Counter((node.op, node.lifter) for node in self.nodes if node.lifter is not None)

    def by_reason(self) -> Counter[tuple[str, str]]:
        """Count the nodes that stayed, by op and reason."""
        return Counter((node.op, node.reason) for node in self.nodes if node.lifter is None)


def keep_report(fgraph: FunctionGraph, report: LiftReport) -> None:
    """Remember a lift with the graph that it changed."""
    fgraph.lift_reports = [*lift_reports(fgraph), report]


def lift_reports(fgraph: FunctionGraph) -> list[LiftReport]:
    """Return what lifts did to a graph, the latest last."""
    return getattr(fgraph, "lift_reports", [])

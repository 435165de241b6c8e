"""Reports of lifted graphs: the placement of each node, without references to the graph."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rich.console import Group
from rich.table import Table

from optdb.host.api.graph import FunctionGraph
from optdb.html_tables import ReportTables
from optdb.lifters.text_tables import new_table, text_of


@dataclass(frozen=True)
class NodeReport:
    """The placement of one node.

    Parameters
    ----------
    op : str
        The host op.
    context_name : str or None
        The node's context; None on the host, or if the default context has no name.
    lifter, reason : str or None
        The lifter that lifted the node, or why it stayed on the host.
    """

    op: str
    context_name: str | None
    lifter: str | None
    reason: str | None


@dataclass(frozen=True, repr=False)
class LiftReport(ReportTables):
    """The report of one lifted graph; it lists all nodes except transfers, in topological order."""

    device: str
    nodes: list[NodeReport] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def lifted(self) -> int:
        """The number of nodes that were lifted."""
        return sum(node.lifter is not None for node in self.nodes)

    def by_lifter(self) -> Counter[tuple[str, str | None]]:
        """Count the lifted nodes by op and lifter."""
        return Counter((node.op, node.lifter) for node in self.nodes if node.lifter is not None)

    def by_reason(self) -> Counter[tuple[str, str | None]]:
        """Count, by op and reason, the nodes that stayed on the host."""
        return Counter((node.op, node.reason) for node in self.nodes if node.lifter is None)

    def __str__(self) -> str:
        return text_of(self.render())

    def render(self) -> Group:
        """Return the tables of lifted nodes and of nodes that stayed on the host, for `rich`."""
        return Group(*self.tables())

    def tables(self) -> list[Table]:
        """Return the non-empty tables of lifted nodes and of nodes that stayed on the host."""
        tables = [
            _counted(f"lifted to {self.device}", "by", self.by_lifter()),
            _counted("stayed on the host", "because", self.by_reason()),
        ]
        return [table for table in tables if table.row_count]


def _counted(title: str, why: str, nodes: Counter[tuple[str, str | None]]) -> Table:
    rows = ((op, reason, count) for (op, reason), count in nodes.most_common())
    return new_table(title, ("op", why), ("nodes",), rows)


def keep_report(fgraph: FunctionGraph, report: LiftReport) -> None:
    """Attach a report to the graph."""
    fgraph.lift_reports = [*lift_reports(fgraph), report]


def lift_reports(fgraph: FunctionGraph) -> list[LiftReport]:
    """Return a report for each time that the graph was lifted, the earliest first."""
    return getattr(fgraph, "lift_reports", [])

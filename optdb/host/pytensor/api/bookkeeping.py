"""Functions that order a graph's nodes and reconnect variables."""

from __future__ import annotations

from collections.abc import Iterable

from pytensor.graph.traversal import toposort

from optdb.host.api.graph import Apply, FunctionGraph, Variable


def order_by_data(fgraph: FunctionGraph) -> list[Apply]:
    """Return the nodes of a graph in topological order."""
    return list(toposort(fgraph.outputs))


def reconnect(fgraph: FunctionGraph, variables: Iterable[Variable]) -> None:
    """Do nothing, because PyTensor's history has already restored the graph after a refused replacement."""

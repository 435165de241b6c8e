"""Functions that order a graph's nodes and reconnect variables, for PyTensor, which maintains its graphs itself."""

from __future__ import annotations

from collections.abc import Iterable

from pytensor.graph.traversal import toposort

from optdb.host.api.graph import Apply, FunctionGraph, Variable


def order_by_data(fgraph: FunctionGraph) -> list[Apply]:
    """Return the nodes of a graph, each after the nodes that compute its inputs."""
    return list(toposort(fgraph.outputs))


def reconnect(fgraph: FunctionGraph, variables: Iterable[Variable]) -> None:
    """Do nothing: the graph's history has already restored the graph after a refused replacement."""

"""The order of a graph's nodes, and the reconnection of variables: PyTensor's own keep both."""

from __future__ import annotations

from collections.abc import Iterable

from pytensor.graph.traversal import toposort

from optdb.host.api.graph import Apply, FunctionGraph, Variable

__all__ = ["order_by_data", "reconnect"]


def order_by_data(fgraph: FunctionGraph) -> list[Apply]:
    """Return the nodes of a graph, each after those that compute its inputs."""
    return list(toposort(fgraph.outputs))


def reconnect(fgraph: FunctionGraph, variables: Iterable[Variable]) -> None:
    """Leave a graph as its history has restored it after a replacement was refused."""

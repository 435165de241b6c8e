"""Graph classes of PyTensor (nodes, variables, the FunctionGraph), and functions that traverse graphs.

Each output of the graph is represented by a client, a node whose op is an ``Output``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph, Output
from pytensor.graph.op import Op
from pytensor.graph.utils import InconsistencyError

PureOp = Op

T = TypeVar("T")


def clients(fgraph: FunctionGraph, var: Variable) -> list[tuple[Apply, int]]:
    """Return the clients of `var` as ``(node, input index)`` pairs; `is_output` detects clients for outputs."""
    return fgraph.clients.get(var, [])


def is_output(client: Apply) -> bool:
    """Return whether a client represents an output of the graph."""
    return client.op.__class__ is Output


def dependencies(node: Apply) -> list[Apply]:
    """Return the nodes that compute `node`'s inputs (with duplicates)."""
    return [var.owner for var in node.inputs if var.owner is not None]


def dependents(fgraph: FunctionGraph, node: Apply) -> list[Apply]:
    """Return the nodes of `fgraph` that use `node`'s outputs (with duplicates)."""
    clients = fgraph.clients
    return [client for var in node.outputs for client, _ in clients.get(var, ()) if client.op.__class__ is not Output]


def drop_repeated_traces(variables: Iterable[Variable]) -> None:
    """Do nothing: PyTensor records no traces while it rewrites."""


def reachable(starts: Iterable[T], following: Callable[[T], Iterable[T]]) -> dict[T, None]:
    """Return `starts` and everything reachable from them through `following`, in order of discovery."""
    reached = dict.fromkeys(starts)
    todo = list(reached)
    while todo:
        for other in following(todo.pop()):
            if other not in reached:
                reached[other] = None
                todo.append(other)
    return reached


def node_ancestors(outputs: Iterable[Variable]) -> set[Any]:
    """Return every node that `outputs` depend on."""
    return set(reachable((var.owner for var in outputs if var.owner is not None), dependencies))

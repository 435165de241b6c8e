"""Keys of the inner graphs of ops.

A key numbers nodes in topological order and inputs by their index. It consists of
types, ops and numbers, and is equal for graphs of the same structure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from optdb.cache.frozen import Same
from optdb.host.api.definition import InnerGraph
from optdb.host.api.graph import Constant, Variable, io_toposort


class GraphKey:
    """The key of a graph, computed only when it is compared with that of a graph with the same hint.

    Parameters
    ----------
    graph : InnerGraph
        The graph, with the hint that its hash is computed from.
    frozen : callable
        The same parameter as for `graph_key`.
    """

    __slots__ = ("_frozen", "_graph", "_key")

    def __init__(self, graph: InnerGraph, frozen: Callable[[Any], Any]) -> None:
        self._graph = graph
        self._frozen = frozen
        self._key: Any = None

    def __hash__(self) -> int:
        return hash(self._graph.hint)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphKey) or self._graph.hint != other._graph.hint:
            return False
        return bool(self.whole() == other.whole())

    def whole(self) -> Any:
        """Return the complete key, computed on first use."""
        if self._key is None:
            self._key = graph_key(self._graph.inputs, self._graph.outputs, self._frozen)
        return self._key


def constant_key(constant: Constant, frozen: Callable[[Any], Any]) -> Any:
    """Return a hashable key of a constant: its type and its value."""
    return ("constant", constant.type, frozen(constant.signature()))


def graph_key(inputs: Sequence[Variable], outputs: Sequence[Variable], frozen: Callable[[Any], Any]) -> Any:
    """Return a hashable key of the graph between `inputs` and `outputs`.

    Parameters
    ----------
    inputs, outputs : sequence of Variable
        The ends of the graph. It may also contain constants, compared by value, and
        other variables without an owner, compared by identity.
    frozen : callable
        Makes the key of an op or a constant's signature; types are their own keys.

    Returns
    -------
    tuple
        Types of the inputs, one entry per node, and the sources of the outputs.
    """
    sources: dict[Variable, Any] = {var: ("input", index) for index, var in enumerate(inputs)}

    def source(var: Variable) -> Any:
        key = sources.get(var)
        if key is not None:
            return key
        if isinstance(var, Constant):
            return constant_key(var, frozen)
        return ("variable", Same(var))

    nodes = []
    for number, node in enumerate(io_toposort(inputs, outputs)):
        types = tuple([var.type for var in node.outputs])
        nodes.append((frozen(node.op), tuple([source(var) for var in node.inputs]), types))
        sources.update((var, ("node", number, index)) for index, var in enumerate(node.outputs))
    return (tuple([var.type for var in inputs]), tuple(nodes), tuple([source(var) for var in outputs]))

"""Detects whether a rewriter has read the graph before it declined a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph

#: The result of a rewriter that will decline a node until an ancestor of the node changes. If another change may
#: suffice, the result is None.
LASTING = False


class ReadsOfGraph:
    """A FunctionGraph that records whether it was read.

    A rewriter receives a graph and a node. A rewriter that declines the node without reading the graph can only have
    read the node's ancestors.
    """

    __slots__ = ("_fgraph", "_was_read")

    def __init__(self, fgraph: FunctionGraph) -> None:
        object.__setattr__(self, "_fgraph", fgraph)
        object.__setattr__(self, "_was_read", [False])  # changing a list is faster than changing an attribute

    @property  # type: ignore[misc]  # isinstance reads it
    def __class__(self) -> type:
        return FunctionGraph

    def __getattr__(self, name: str) -> Any:
        self._was_read[0] = True
        return getattr(self._fgraph, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._was_read[0] = True
        setattr(self._fgraph, name, value)

    def __contains__(self, item: Any) -> bool:
        self._was_read[0] = True
        return item in self._fgraph

    def __eq__(self, other: object) -> bool:
        self._was_read[0] = True
        return other is self or other is self._fgraph

    def __hash__(self) -> int:
        self._was_read[0] = True
        return hash(self._fgraph)

    def observed(self, transform: Callable[[FunctionGraph, Apply], Any]) -> Callable[[Apply], Any]:
        """Return a function that calls `transform` with a node, and returns `LASTING` if only ancestors were read."""
        was_read = self._was_read

        def transform_node(node: Apply) -> Any:
            was_read[0] = False
            replacements = transform(self, node)
            if replacements is None or replacements is False:
                return None if was_read[0] else LASTING
            return replacements

        return transform_node

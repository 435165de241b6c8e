"""The key of an op: a hashable value made of its class and its defining values.

If an op's definition contains a shared op, the key contains the shared op's identity. The key of an inner graph refers
to nodes by their numbers in topological order, so graphs of the same structure have equal keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from optdb.cache.frozen import Freezer, Same, Unhashable
from optdb.host.api.definition import (
    InnerGraph,
    carries_notes,
    declared,
    definition,
    has_inner_graph,
    hashes_itself,
    keeps_test_values,
)
from optdb.host.api.graph import Constant, PureOp, Variable, io_toposort


class GraphKey:
    """The key of an inner graph; it is computed only for a comparison with a key whose graph has the same `hint`."""

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
        """Return the complete key."""
        if self._key is None:
            self._key = _graph_key(self._graph.inputs, self._graph.outputs, self._frozen)
        return self._key


def _constant_key(constant: Constant, frozen: Callable[[Any], Any]) -> Any:
    return ("constant", constant.type, frozen(constant.signature()))


def _graph_key(inputs: Sequence[Variable], outputs: Sequence[Variable], frozen: Callable[[Any], Any]) -> Any:
    """Return a hashable key for a graph: its input types, an entry for each node, and the sources of its outputs.

    Constants are compared by value; variables that are neither inputs nor computed are compared by identity.
    """
    sources: dict[Variable, Any] = {var: ("input", index) for index, var in enumerate(inputs)}

    def source(var: Variable) -> Any:
        key = sources.get(var)
        if key is not None:
            return key
        if isinstance(var, Constant):
            return _constant_key(var, frozen)
        return ("variable", Same(var))

    nodes = []
    for number, node in enumerate(io_toposort(inputs, outputs)):
        types = tuple([var.type for var in node.outputs])
        nodes.append((frozen(node.op), tuple([source(var) for var in node.inputs]), types))
        sources.update((var, ("node", number, index)) for index, var in enumerate(node.outputs))
    return (tuple([var.type for var in inputs]), tuple(nodes), tuple([source(var) for var in outputs]))


class Unshareable(Exception):
    """Raised for an op that cannot be shared; the message gives the reason."""


@dataclass(frozen=True)
class Key:
    """The key of an op in the store.

    Parameters
    ----------
    declared : tuple
        The class and the values of its props.
    rest : tuple
        Names and values of all other defining attributes, sorted by name.
    label : str or None
        The name of the op.
    """

    declared: tuple[Any, ...]
    rest: tuple[tuple[str, Any], ...]
    label: str | None

    @property
    def whole(self) -> tuple[Any, ...]:
        """The whole key, for use in dictionaries."""
        return (self.declared, self.rest, self.label)

    @property
    def unnamed(self) -> tuple[Any, ...]:
        """The key without the label."""
        return (self.declared, self.rest, None)


class Keys:
    """Makes the keys of ops. `shared` returns the shared op that is equal to a given op, or None."""

    def __init__(self, shared: Callable[[PureOp], PureOp | None]) -> None:
        self._shared = shared
        self._props = Freezer(special=self._special)
        self._rest = Freezer(changing=True, special=self._special)

    def of(self, op: PureOp) -> Key:
        """Return the key of `op`, or raise Unshareable."""
        cls = type(op)
        names = declared(cls)
        if names is None:
            raise Unshareable("has no __props__")
        if has_inner_graph(cls) and keeps_test_values():
            raise Unshareable("carries test values in its inner graph")
        for name in names:
            if not hasattr(op, name):
                raise Unshareable(f"has no attribute {name!r}, which __props__ names")
        described = definition(op)
        if has_inner_graph(cls) and carries_notes(described.rest["graph"]):
            raise Unshareable("has tags on variables of its inner graph")
        # Some classes have lists or dicts as props, and define a hash that supports them.
        freeze = self._rest if hashes_itself(cls) else self._props  # type: ignore[arg-type]  # the class's hash, not its ops'
        props = [_prop(freeze, name, value) for name, value in zip(names, described.props, strict=False)]
        rest = tuple([(name, self._rest(described.rest[name])) for name in sorted(described.rest)])
        return Key((cls, *props), rest, described.label)

    def _special(self, value: Any) -> Any:
        if isinstance(value, PureOp):
            shared = self._shared(value)
            return None if shared is None else Same(shared)
        if isinstance(value, InnerGraph):
            return GraphKey(value, self._rest)
        if isinstance(value, Constant):
            return _constant_key(value, self._rest)
        return None


def _prop(freeze: Freezer, name: str, value: Any) -> Any:
    try:
        return freeze(value)
    except Unhashable as reason:
        raise Unshareable(f"prop {name!r} {reason}") from None

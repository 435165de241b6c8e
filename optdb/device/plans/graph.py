"""The nodes of a function as plans see them, and what is known of its values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from optdb.runtime.context import Context

__all__ = ["Node", "NodeGraph", "ValueId"]

#: The name of a value of a function: anything that the front end can hash, such as a variable of the host's graph.
ValueId = Hashable


@dataclass(eq=False)
class Node:
    """One computation of a function, and the facts about it that plans rely on.

    The attributes say what the host's graph says; a node for which the front end knows nothing better is one that
    plans compute in each call.
    """

    #: The node of the host's graph, for the front end.
    origin: Any
    inputs: Sequence[ValueId]
    outputs: Sequence[ValueId]
    #: Computes the outputs, from cells into cells.
    compute: Callable[[], Any]
    #: For a choice between two branches: the number of its outputs. The first input is the condition, then come the
    #: values of the branch for a true one, then those of the other branch.
    chosen: int = 0
    #: Whether it sees nothing but the shapes of its inputs, and gives values of the host.
    reads_shapes: bool = False
    #: Whether all commands that it enqueues may be recorded, and enqueued again.
    is_repeatable: bool = False
    #: Whether it may enqueue commands that a recorder does not see.
    is_foreign: bool = False
    #: Whether it computes values of the host from nothing but its inputs, so that no one sees when it computes.
    is_pure: bool = False
    #: Whether it may overwrite an input.
    is_inplace: bool = False
    #: Output to the inputs that may be in its memory: the elements that are read are those that are written next.
    overwritable: Mapping[ValueId, Set[ValueId]] = field(default_factory=dict)
    #: Whether it is a loop, whose steps release the memory that they allocate.
    is_loop: bool = False
    #: Whether its kernels see values of the host only in lookup tables (see ``tables``).
    reads_tables_alone: bool = False
    #: Outputs that are views, whose place may depend on values of the host, and that may be copies as well.
    copyable_views: Sequence[ValueId] = ()


@dataclass(eq=False, repr=False)
class NodeGraph:
    """The nodes of a function in the order in which they run, and the cells of its values."""

    nodes: list[Node]
    #: Value to the list of one element that holds it.
    cells: Mapping[ValueId, list[Any]]
    inputs: list[ValueId]
    outputs: list[ValueId]
    #: Value on a device to the context that it is in; all other values are on the host.
    contexts: Mapping[ValueId, Context]
    #: The values that never change.
    constants: Set[ValueId] = frozenset()
    #: The values whose memory is seen outside of the nodes, or that a node overwrites.
    exposed: Set[ValueId] = frozenset()
    #: The values that a node may overwrite, and those that may share memory with one.
    overwritten: Set[ValueId] = frozenset()
    #: The numbers of the nodes that overwrite inputs of the function.
    final: frozenset[int] = frozenset()
    #: Number of a node to the numbers of nodes that have to be computed before it, if at all: they read what it
    #: overwrites.
    before: Mapping[int, Sequence[int]] = field(default_factory=dict)
    #: Whether cells are emptied within a call as soon as they are dead.
    frees: bool = True

    @functools.cached_property
    def producers(self) -> dict[ValueId, int]:
        """Value to the number of the node that computes it; the others are inputs and constants."""
        return {value: number for number, node in enumerate(self.nodes) for value in node.outputs}

    def value(self, var: ValueId) -> Any:
        """Return the value in a cell."""
        return self.cells[var][0]

    def on_device(self, value: ValueId) -> bool:
        """Tell whether a value is on a device."""
        return value in self.contexts

    def touches_device(self, node: Node) -> bool:
        """Tell whether a node takes or gives arrays on a device."""
        return any(map(self.on_device, node.inputs)) or any(map(self.on_device, node.outputs))

    def is_unseen(self, node: Node) -> bool:
        """Tell whether nobody could see when a node computes: it takes and gives values of the host, and is pure."""
        return node.is_pure and not self.touches_device(node)

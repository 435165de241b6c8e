"""The graph of a function for plans: its nodes, and properties of its values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from optdb.runtime.context import Context

#: Identifies a value in a function: a hashable object of the front end, such as a variable.
ValueId = Hashable


@dataclass(eq=False)
class Node:
    """A computation in a function; with default attributes, it runs in Python in every call."""

    #: The node of the host's graph, for the front end.
    origin: Any
    inputs: Sequence[ValueId]
    outputs: Sequence[ValueId]
    #: Computes the outputs from the inputs; both are in cells.
    compute: Callable[[], Any]
    #: The number of outputs if the node chooses between two branches, otherwise 0. The inputs are the condition, the
    #: values for a true condition, and the values for a false one.
    chosen: int = 0
    #: Whether the node computes host values from its inputs' shapes alone.
    reads_shapes: bool = False
    #: Whether the node's commands may be recorded and enqueued again.
    is_repeatable: bool = False
    #: Whether the node may enqueue commands that a recorder cannot see.
    is_foreign: bool = False
    #: Whether the node computes host values from its inputs alone, so that it may run at any time.
    is_pure: bool = False
    is_inplace: bool = False
    #: Maps an output to the inputs that may share its memory, because the node reads each element before it writes it.
    overwritable: Mapping[ValueId, Set[ValueId]] = field(default_factory=dict)
    #: Whether the node is a loop; a loop's steps release the memory that they allocate.
    is_loop: bool = False
    #: Whether the node's kernels read host values only through lookup tables (`NodeTable`).
    reads_tables_alone: bool = False
    #: Outputs that are views whose offsets may depend on host values; copies may replace them.
    copyable_views: Sequence[ValueId] = ()


@dataclass(eq=False, repr=False)
class NodeGraph:
    """The nodes of a function in the order in which they run, and the cells of its values."""

    nodes: list[Node]
    #: Maps a value to its cell: a list of one element.
    cells: Mapping[ValueId, list[Any]]
    inputs: list[ValueId]
    outputs: list[ValueId]
    #: Maps a device value to its context; all other values are on the host.
    contexts: Mapping[ValueId, Context]
    constants: Set[ValueId] = frozenset()
    #: The values whose memory is visible outside the nodes or overwritten by a node.
    exposed: Set[ValueId] = frozenset()
    #: The values that a node may overwrite, and values that may share their memory.
    overwritten: Set[ValueId] = frozenset()
    #: The numbers of the nodes that overwrite inputs of the function.
    final: frozenset[int] = frozenset()
    #: Maps a node's number to the nodes that must run before it because they read values that it overwrites.
    before: Mapping[int, Sequence[int]] = field(default_factory=dict)
    #: Whether a call empties each cell as soon as its value is dead.
    frees: bool = True

    @functools.cached_property
    def producers(self) -> dict[ValueId, int]:
        """Maps a computed value to its node's number; all other values are inputs or constants."""
        return {value: number for number, node in enumerate(self.nodes) for value in node.outputs}

    def value(self, var: ValueId) -> Any:
        return self.cells[var][0]

    def on_device(self, value: ValueId) -> bool:
        return value in self.contexts

    def touches_device(self, node: Node) -> bool:
        return any(map(self.on_device, node.inputs)) or any(map(self.on_device, node.outputs))

    def is_unobservable(self, node: Node) -> bool:
        """Return whether a node may run at any time, because it is pure and all its values are on the host."""
        return node.is_pure and not self.touches_device(node)

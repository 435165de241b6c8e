"""The compiled function that a front end passes to plans."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from optdb.device.plans.paths import Branches, Path
from optdb.runtime.arrays import Array
from optdb.runtime.context import Context
from optdb.runtime.recording import ArrayLayout

#: Identifies a value in a function: any hashable object from the front end, such as a variable in the host's graph.
ValueId = Hashable


@dataclass(eq=False)
class Node:
    """One computation in a function; with default attributes, it runs in Python in every call."""

    #: The node of the host's graph, for the front end.
    origin: Any
    inputs: Sequence[ValueId]
    outputs: Sequence[ValueId]
    #: Computes the outputs from the inputs; both are in cells.
    compute: Callable[[], Any]
    #: The number of outputs if the node chooses between two branches, otherwise 0. The inputs are the condition, then
    #: the values for a true condition, then those for a false one.
    chosen: int = 0
    #: Whether the node reads only the shapes of its inputs, and computes host values.
    reads_shapes: bool = False
    #: Whether all commands that the node enqueues may be recorded and enqueued again.
    is_repeatable: bool = False
    #: Whether the node may enqueue commands that a recorder does not see.
    is_foreign: bool = False
    #: Whether the node computes host values from its inputs alone, so that it may run at any time.
    is_pure: bool = False
    is_inplace: bool = False
    #: Maps an output to the inputs that may share its memory because the node reads each element before overwriting it.
    overwritable: Mapping[ValueId, Set[ValueId]] = field(default_factory=dict)
    #: Whether the node is a loop; a loop's steps release the memory that they allocate.
    is_loop: bool = False
    #: Whether the node's kernels read host values only through lookup tables (`NodeTable`).
    reads_tables_alone: bool = False
    #: Outputs that are views with offsets that may depend on host values; copies may replace these views.
    copyable_views: Sequence[ValueId] = ()


class PlanOptions(NamedTuple):
    """The user's options for plans; the flags ``optdb.*`` document them."""

    merge_launches: str = "auto"
    persistent_launches: str = "auto"
    #: The fraction of a device's memory that a function may use.
    device_memory_fraction: float = 1.0


@dataclass(frozen=True)
class Roles:
    """The roles of a function's nodes.

    A node always runs if it moves device values to the host, computes a host value that the plan does not own, or runs
    commands that cannot be recorded. **A plan owns a host value only if no variable in its alias class is visible
    outside the nodes that read it**, so that no other code can overwrite the value or empty its cell.
    """

    #: The nodes that depend on host values that may change, including those that always run.
    value_dependent: frozenset[Node]
    #: The nodes that run in Python in each call.
    always_recompute: frozenset[Node]


def _find_roles(
    graph: LinkedFunction, steps: Iterable[tuple[Node, Sequence[ValueId]]], unrepeatable: Collection[Node]
) -> Roles:
    """Find the roles of the nodes on a path, given the inputs that they use and the `unrepeatable` nodes."""
    inputs = set(graph.inputs)
    changing = {var for var in inputs if not graph.on_device(var)}
    value_dependent: set[Node] = set()
    always_recompute: set[Node] = set()
    for node, used in steps:
        if node in unrepeatable or _always_recomputes(graph, node):
            always_recompute.add(node)
        elif changing.isdisjoint(_guarded(graph, node, inputs, used)):
            continue
        value_dependent.add(node)
        changing.update(node.outputs)
    return Roles(frozenset(value_dependent), frozenset(always_recompute))


def _guarded(graph: LinkedFunction, node: Node, given: set[ValueId], used: Sequence[ValueId]) -> list[ValueId]:
    """Return the inputs to guard: all except conditions, constants, and inputs of which only shapes are read."""
    if node.reads_shapes:
        return [var for var in used if var not in given]
    return [var for var in used[bool(node.chosen) :] if var not in graph.constants]


def _always_recomputes(graph: LinkedFunction, node: Node) -> bool:
    on_host = [var for var in node.outputs if not graph.on_device(var)]
    if not graph.exposed.isdisjoint(on_host):
        return True
    if on_host and not node.reads_shapes and any(map(graph.on_device, node.inputs)):
        return True
    return graph.touches_device(node) and not node.is_repeatable


def _nothing(_: Any) -> Collection[Any]:
    return ()


@dataclass(eq=False, repr=False)
class LinkedFunction:
    """A compiled function: its nodes in the order in which they run, the cells of its values, updates, and options."""

    nodes: list[Node]
    #: Maps a value to its cell: a list of one element.
    cells: Mapping[ValueId, list[Any]]
    inputs: list[ValueId]
    outputs: list[ValueId]
    #: Maps a device value to its context; all other values are on the host.
    contexts: Mapping[ValueId, Context]
    constants: Set[ValueId] = frozenset()
    #: The values whose memory is visible outside of the nodes, and values that a node overwrites.
    exposed: Set[ValueId] = frozenset()
    #: The values that a node may overwrite, and the values that may share memory with them.
    overwritten: Set[ValueId] = frozenset()
    #: The numbers of the nodes that overwrite inputs of the function.
    final: frozenset[int] = frozenset()
    #: Maps a node's number to the nodes that must run before it, since they read values that it overwrites.
    before: Mapping[int, Sequence[int]] = field(default_factory=dict)
    #: Whether a call empties each cell as soon as its value is dead.
    frees: bool = True
    #: Maps an input to the output that is its next value.
    updates: dict[ValueId, ValueId] = field(default_factory=dict)
    #: Cells to empty before a call, because the caller may have views of their values.
    clear_before: list[list[Any]] = field(default_factory=list)
    #: Device inputs that, if large, may have another buffer in each call. Each is C-contiguous, fills its own buffer,
    #: and is not overwritten.
    rebindable_inputs: frozenset[ValueId] = frozenset()
    #: Maps a device output to a function that selects its buffer in each call: it maps the value's layout to a buffer,
    #: or to None for the plan's choice.
    external_outputs: dict[ValueId, Callable[[ArrayLayout], Any]] = field(default_factory=dict)
    #: Device inputs whose current values are never read, so that next values may be written early (``donation``).
    scratch: frozenset[ValueId] = frozenset()
    #: Whether plans merge small launches at once, because other devices wait for calls.
    merges_at_once: bool = False
    #: Whether a call with the same inputs as the last one only enqueues the last call's commands.
    repeats_commands: bool = False
    options: Callable[[], PlanOptions] = PlanOptions
    #: Maps an input to a check that raises ValueError if its next value has a wrong length.
    next_value_checks: Mapping[ValueId, Callable[[Any], None]] = field(default_factory=dict)
    #: Returns the host values that are recomputed in each call and may share memory with an output.
    aliases: Callable[[ValueId], Collection[ValueId]] = _nothing
    #: Describes a value with a given layout, for error messages.
    describe: Callable[[ValueId, ArrayLayout], str] = lambda _, layout: f"{layout.dtype} {layout.shape}"
    #: Called with the number of a node that raised; may raise a more informative error.
    explain: Callable[[int], Any] = _nothing
    _roles: dict[tuple[Path, frozenset[Node]], Roles] = field(init=False, default_factory=dict)

    @functools.cached_property
    def producers(self) -> dict[ValueId, int]:
        """Maps a value to the number of the node that computes it; all other values are inputs and constants."""
        return {value: number for number, node in enumerate(self.nodes) for value in node.outputs}

    def value(self, var: ValueId) -> Any:
        return self.cells[var][0]

    def on_device(self, value: ValueId) -> bool:
        return value in self.contexts

    def touches_device(self, node: Node) -> bool:
        return any(map(self.on_device, node.inputs)) or any(map(self.on_device, node.outputs))

    def is_unobservable(self, node: Node) -> bool:
        """Return whether nothing can observe when a node runs: the node is pure, and all its values are on the host."""
        return node.is_pure and not self.touches_device(node)

    @property
    def merge_launches(self) -> str:
        """The user's option, with 'always' instead of 'auto' if launches are merged at once."""
        wish = self.options().merge_launches
        return "always" if self.merges_at_once and wish == "auto" else wish

    @functools.cached_property
    def branches(self) -> Branches:
        return Branches(self)

    def roles(self, path: Path, unrepeatable: Collection[Node] = frozenset()) -> Roles:
        """Return the roles of the nodes on a path; `unrepeatable` nodes could not be recorded."""
        key = path, frozenset(unrepeatable)
        if key not in self._roles:
            steps = ((node, path.inputs_of(node)) for _, node in path.steps)
            self._roles[key] = _find_roles(self, steps, unrepeatable)
        return self._roles[key]

    @functools.cached_property
    def advancing(self) -> list[tuple[ValueId, ValueId]]:
        """Shared arrays on the device whose current values are no results, with their next values."""
        pairs = self.updates.items()
        return [(var, following) for var, following in pairs if var in self.contexts and var not in self.outputs]

    def run(self, number: int) -> None:
        """Run one node; if it raises, `explain` may raise a more informative error."""
        try:
            self.nodes[number].compute()
        except Exception:
            self.explain(number)
            raise

    def forget(self) -> None:
        for var, cell in self.cells.items():
            if var in self.producers and isinstance(cell[0], Array):
                cell[0] = None

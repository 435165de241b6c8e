"""The compiled function that a front end passes to plans."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from optdb.device.plans.graph import Node, NodeGraph, ValueId
from optdb.device.plans.paths import Branches, Path
from optdb.runtime.arrays import Array
from optdb.runtime.recording import ArrayLayout


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
    graph: NodeGraph, steps: Iterable[tuple[Node, Sequence[ValueId]]], unrepeatable: Collection[Node]
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


def _guarded(graph: NodeGraph, node: Node, given: set[ValueId], used: Sequence[ValueId]) -> list[ValueId]:
    """Return the inputs to guard: all except conditions, constants, and inputs whose shapes alone are read."""
    if node.reads_shapes:
        return [var for var in used if var not in given]
    return [var for var in used[bool(node.chosen) :] if var not in graph.constants]


def _always_recomputes(graph: NodeGraph, node: Node) -> bool:
    on_host = [var for var in node.outputs if not graph.on_device(var)]
    if not graph.exposed.isdisjoint(on_host):
        return True
    if on_host and not node.reads_shapes and any(map(graph.on_device, node.inputs)):
        return True
    return graph.touches_device(node) and not node.is_repeatable


def _nothing(_: Any) -> Collection[Any]:
    return ()


@dataclass(eq=False, repr=False)
class LinkedFunction(NodeGraph):
    """A compiled function: its nodes, updates, and options."""

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

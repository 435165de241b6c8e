"""A compiled function as a front end hands it over: its nodes, what computes each of them, and its values' cells."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from optdb.device.plans.graph import Node, NodeGraph, ValueId
from optdb.device.plans.paths import Branches, Path
from optdb.device.plans.roles import Roles, find_roles
from optdb.runtime.arrays import Array
from optdb.runtime.recording import ArrayLayout

__all__ = ["LinkedFunction", "PlanOptions"]


class PlanOptions(NamedTuple):
    """What a user may choose for plans; the flags ``optdb.*`` describe the values."""

    merge_launches: str = "auto"
    persistent_launches: str = "auto"
    #: The part of a device's memory that a function may take.
    device_memory_fraction: float = 1.0


def _nothing(_: Any) -> Collection[Any]:
    return ()


@dataclass(eq=False, repr=False)
class LinkedFunction(NodeGraph):
    """A compiled function: its nodes, and what its calls do besides computing them."""

    #: Input to the output that is its next value.
    updates: dict[ValueId, ValueId] = field(default_factory=dict)
    #: Cells to be emptied before a call: the arrays that the caller's results are views of must be new each time.
    clear_before: list[list[Any]] = field(default_factory=list)
    #: Inputs on the device that may be in another buffer in each call, if they are large: in C order, all of a buffer
    #: that no other input is in, and not overwritten.
    rebindable_inputs: frozenset[ValueId] = frozenset()
    #: Output on the device to a function that selects the buffer of its value in each call: it takes the layout of
    #: the value, and returns a buffer, or None for any.
    external_outputs: dict[ValueId, Callable[[ArrayLayout], Any]] = field(default_factory=dict)
    #: Inputs on the device whose present values nobody reads: the next ones may be written there early (``donation``).
    scratch: frozenset[ValueId] = frozenset()
    #: Whether its plans merge small launches at once, and not when that has paid: others wait for each of its calls.
    merges_at_once: bool = False
    #: Whether a call that finds what the last one has found enqueues the same commands, and does nothing else.
    repeats_commands: bool = False
    #: Returns the user's choices as they are now.
    options: Callable[[], PlanOptions] = PlanOptions
    #: Input to a check of its next value, which raises ValueError where that has lengths that it must not have.
    next_value_checks: Mapping[ValueId, Callable[[Any], None]] = field(default_factory=dict)
    #: Returns the values of the host that nodes compute in each call, and that may share memory with an output.
    aliases: Callable[[ValueId], Collection[ValueId]] = _nothing
    #: Describes a value of a layout, for an error.
    describe: Callable[[ValueId, ArrayLayout], str] = lambda _, layout: f"{layout.dtype} {layout.shape}"
    #: Called with the number of a node that has raised: may raise an error that says more.
    explain: Callable[[int], Any] = _nothing
    _roles: dict[tuple[Path, frozenset[Node]], Roles] = field(init=False, default_factory=dict)

    @property
    def merge_launches(self) -> str:
        """How small launches are merged: the user's choice, if nothing else is known."""
        wish = self.options().merge_launches
        return "always" if self.merges_at_once and wish == "auto" else wish

    @functools.cached_property
    def branches(self) -> Branches:
        """Finds which nodes a call computes."""
        return Branches(self)

    def roles(self, path: Path, unrepeatable: Collection[Node] = frozenset()) -> Roles:
        """Return the roles of the nodes of a path; the `unrepeatable` ones could not be recorded."""
        key = path, frozenset(unrepeatable)
        if key not in self._roles:
            steps = ((node, path.inputs_of(node)) for _, node in path.steps)
            self._roles[key] = find_roles(self, steps, unrepeatable)
        return self._roles[key]

    @functools.cached_property
    def advancing(self) -> list[tuple[ValueId, ValueId]]:
        """Shared arrays on the device and their next values, except those whose present values are results."""
        pairs = self.updates.items()
        return [(var, following) for var, following in pairs if var in self.contexts and var not in self.outputs]

    def run(self, number: int) -> None:
        """Compute one node; an error names the node and where it was made."""
        try:
            self.nodes[number].compute()
        except Exception:
            self.explain(number)
            raise

    def forget(self) -> None:
        """Empty the cells of all device arrays that nodes have made."""
        for var, cell in self.cells.items():
            if var in self.producers and isinstance(cell[0], Array):
                cell[0] = None

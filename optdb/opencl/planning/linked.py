"""A compiled function as the linker hands it over: its nodes, what computes each of them, and its variables' cells."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from optdb.host.api.config import config
from optdb.host.api.graph import Apply, Variable
from optdb.host.api.linking import raise_with_op
from optdb.opencl.aliasing import exposed_variables
from optdb.opencl.kernel_ops.patterns import check_kinds, check_lengths, promised_axes
from optdb.opencl.planning.paths import Branches, Path
from optdb.opencl.planning.roles import Roles, find_roles, is_foreign, on_device, overwrites
from optdb.runtime.arrays import Array
from optdb.runtime.commands import HostCall, enqueue, listened, listening
from optdb.runtime.holding import HeldCommands
from optdb.runtime.recording import ArrayLayout, Recorder


@dataclass(eq=False)
class LinkedFunction:
    """A compiled function: its nodes in the order in which they run, what computes each, and its variables' cells."""

    nodes: list[Apply]
    thunks: list[Callable[[], Any]]
    #: Variable to the list of one element that holds its value.
    cells: dict[Variable, list[Any]]
    #: Cells to be emptied before a call: the arrays that the caller's results are views of must be new each time.
    clear_before: list[list[Any]]
    inputs: list[Variable]
    outputs: list[Variable]
    #: Input to the output that is its next value.
    updates: dict[Variable, Variable]
    #: Node to nodes that have to be computed before it, if at all: they read what it overwrites.
    before: Mapping[Apply, Iterable[Apply]] = field(default_factory=dict)
    #: Whether cells are emptied within a call as soon as they are dead.
    frees: bool = True
    #: Inputs on the device that may be in another buffer in each call, if they are large: in C order, all of a buffer
    #: that no other input is in, and not overwritten.
    rebindable_inputs: frozenset[Variable] = frozenset()
    #: Output on the device to a function that selects the buffer of its value in each call: it takes the layout of
    #: the value, and returns a buffer, or None for any.
    external_outputs: dict[Variable, Callable[[ArrayLayout], Any]] = field(default_factory=dict)
    #: Inputs on the device whose present values nobody reads: the next ones may be written there early (``donation``).
    scratch: frozenset[Variable] = frozenset()
    #: Whether its plans merge small launches at once, and not when that has paid: others wait for each of its calls.
    merges_at_once: bool = False
    #: Whether a call that finds what the last one has found enqueues the same commands, and does nothing else.
    repeats_commands: bool = False
    _roles: dict[tuple[Path, frozenset[Apply]], Roles] = field(init=False, default_factory=dict)

    @property
    def merge_launches(self) -> str:
        """How small launches are merged: the flag ``optdb.merge_launches``, if nothing else is known."""
        return self._sooner(config.optdb.merge_launches)

    @property
    def persistent_launches(self) -> str:
        """Whether and when persistent launches replace others: as of the flag, if nothing else is known."""
        return self._sooner(config.optdb.persistent_launches)

    def _sooner(self, wish: str) -> str:
        return "always" if self.merges_at_once and wish == "auto" else wish

    @functools.cached_property
    def branches(self) -> Branches:
        """Finds which nodes a call computes."""
        return Branches(self.nodes, self.inputs, self.outputs, self.cells, self.before, self.frees)

    def roles(self, path: Path, unrepeatable: Collection[Apply] = frozenset()) -> Roles:
        """Return the roles of the nodes of a path; the `unrepeatable` ones could not be recorded."""
        key = path, frozenset(unrepeatable)
        if key not in self._roles:
            steps = ((node, path.inputs_of(node)) for _, node in path.steps)
            self._roles[key] = find_roles(steps, self.inputs, self.exposed, unrepeatable)
        return self._roles[key]

    @functools.cached_property
    def exposed(self) -> set[Variable]:
        """Variables whose memory is seen outside of the nodes, or that a node overwrites."""
        return exposed_variables(self.nodes, self.inputs, self.outputs, overwrites)

    @functools.cached_property
    def overwritten(self) -> set[Variable]:
        """Variables that a node may overwrite, and those that may share memory with one."""
        return exposed_variables(self.nodes, (), ())

    def aliases(self, var: Variable) -> set[Variable]:
        """Return the host variables that nodes compute in each call, and that may share memory with an exposed one.

        `var` is among them.
        """
        exposed = exposed_variables(self.nodes, (), [var], overwrites)
        return {alias for alias in exposed if alias.owner is not None and not on_device(alias)}

    @functools.cached_property
    def advancing(self) -> list[tuple[Variable, Variable]]:
        """Shared arrays on the device and their next values, except those whose present values are results."""
        pairs = self.updates.items()
        return [(var, following) for var, following in pairs if on_device(var) and var not in self.outputs]

    def value(self, var: Variable) -> Any:
        """Return the value in a variable's cell."""
        return self.cells[var][0]

    def run(self, number: int) -> None:
        """Compute one node; an error names the node and where it was made."""
        try:
            if number in self.foreign:
                self._prepare_foreign(self.nodes[number])
            self.thunks[number]()
            if number in self.foreign:
                node = self.nodes[number]
                check_kinds(node.op, node.outputs, list(map(self.value, node.outputs)))
        except Exception:
            thunk = self.thunks[number]
            # The error shows values of inputs. Held commands must not be enqueued for that.
            listener = listening()
            held = listener.held if isinstance(listener, Recorder) else listener
            shown = _Unshown(thunk) if isinstance(held, HeldCommands) else thunk
            with listened(None):
                raise_with_op(self.nodes[number], shown, storage_map=self.cells)

    @functools.cached_property
    def foreign(self) -> frozenset[int]:
        """The numbers of the nodes that may enqueue commands that the recorder does not see."""
        return frozenset(number for number, node in enumerate(self.nodes) if is_foreign(node))

    def _prepare_foreign(self, node: Apply) -> None:
        """Record that a node cannot be repeated, and let its results begin where a buffer does.

        Its kernels may ignore the offset of an array that the node has made by `empty` in an earlier call, and rely on
        the broadcast patterns of its inputs.
        """
        check_lengths(node.op, node.inputs, list(map(self.value, node.inputs)), promised_axes(node.inputs))
        enqueue(HostCall(f"{node.op} launches kernels by itself"))
        for var in node.outputs:
            value = self.value(var)
            if isinstance(value, Array) and value.offset:
                self.cells[var][0] = None

    def forget(self) -> None:
        """Empty the cells of all device arrays that nodes have made."""
        for var, cell in self.cells.items():
            if var.owner is not None and isinstance(cell[0], Array):
                cell[0] = None


class _Unshown:
    """A thunk, for an error's text: its inputs on the device have shapes and strides, and no values yet."""

    def __init__(self, thunk: Any) -> None:
        values = [cell[0] for cell in getattr(thunk, "inputs", ())]
        self.inputs = [[_Uncomputed(value) if isinstance(value, Array) else value] for value in values]
        self.outputs = getattr(thunk, "outputs", [])


class _Uncomputed:
    """An array whose values are not computed yet."""

    def __init__(self, array: Array) -> None:
        self.shape, self.strides, self.size = array.shape, array.strides, array.size

    def __str__(self) -> str:
        return "not computed yet"

    __repr__ = __str__

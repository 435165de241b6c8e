"""Records one call of a function: the commands of each node, and the layouts and values of its variables.

:func:`record` runs the nodes, and returns a :class:`Recording`, which holds the layouts of the device arrays that the
call has made, not the arrays; so the call needs no more memory than any other.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.kernels.sequencing import Sequencer
from optdb.host.api.config import config
from optdb.host.api.graph import Apply, Constant, Variable
from optdb.host.api.linking import raise_with_op
from optdb.opencl.aliasing import exposed_variables
from optdb.opencl.kernel_ops.patterns import check_kinds, check_lengths, promised_axes
from optdb.opencl.planning.paths import Branches, Path, Round
from optdb.opencl.planning.roles import Roles, find_roles, is_foreign, on_device, overwrites
from optdb.runtime.arrays import Array
from optdb.runtime.buffer_assignment import IOBinding
from optdb.runtime.commands import HostCall, Memory, enqueue, listened, listening
from optdb.runtime.holding import HeldCommands
from optdb.runtime.host_buffers import pays_zero_copy
from optdb.runtime.merging import may_be_merged
from optdb.runtime.rebinding import bind_io
from optdb.runtime.recording import ArrayLayout, Recorder, Segment
from optdb.runtime.sigint import commit_point

if TYPE_CHECKING:
    from optdb.opencl.planning.budget import BudgetedRecorder

#: Host values with more elements are not compared, but count as changed.
COMPARED = 64
#: The most bytes of a node whose memory is never reused; larger results share memory with others.
_MAX_INVARIANT_BYTES = 1 << 18


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

    @functools.cached_property
    def branches(self) -> Branches:
        """Finds which nodes a call computes."""
        return Branches(self)

    @functools.cached_property
    def exposed(self) -> set[Variable]:
        """Variables whose memory is seen outside of the nodes, or that a node overwrites."""
        return exposed_variables(self.nodes, self.inputs, self.outputs, overwrites)

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


@dataclass(eq=False)
class Recording:
    """The record of one call."""

    linked: LinkedFunction
    #: The nodes that it computed.
    path: Path | None = None
    #: The commands of each of these.
    segments: list[Segment] = field(default_factory=list)
    #: Device variable to its layout.
    layouts: dict[Variable, ArrayLayout] = field(default_factory=dict)
    #: Host variable to its value, as `kept` keeps it.
    values: dict[Variable, Any] = field(default_factory=dict)
    #: Output of a steady node on the host to its value, in full.
    fixed: dict[Variable, Any] = field(default_factory=dict)
    #: Host input of the function to its value.
    given: dict[Variable, Any] = field(default_factory=dict)
    #: How inputs and outputs are bound (see ``optdb.runtime.rebinding``).
    io: IOBinding = field(default_factory=IOBinding)

    @property
    def steps(self) -> Iterator[tuple[int, Apply, Segment]]:
        """The nodes, each with its number and its commands."""
        return ((number, node, segment) for (number, node), segment in zip(self.path.steps, self.segments, strict=True))

    def bind_io(self) -> None:
        """Decide how inputs and outputs are bound, and drop the buffers of external inputs.

        Raises
        ------
        ValueError
            If inputs that may be external share a buffer: the function's caller has to separate them.
        """
        linked, layouts = self.linked, self.layouts
        outputs = {var: layouts[var] for var in linked.external_outputs if var in layouts}
        next_values = {layouts[var].memory for var in linked.updates.values() if var in layouts}
        merges, merger = config.optdb.merge_launches != "never", Sequencer()
        commands = (command for segment in self.segments for command in segment.commands)
        mergeable = [command for command in commands if merges and may_be_merged(command, merger)]
        self.io = bind_io(self._input_memories, outputs, next_values, mergeable)

    @property
    def _input_memories(self) -> dict[Variable, Memory | None]:
        return {var: self.layouts[var].memory for var in self.linked.rebindable_inputs}

    @property
    def copied_inputs(self) -> frozenset[Variable]:
        """The inputs that may be external and are large enough, but are cheaper to copy."""
        memories = self._input_memories.items()
        large = {var for var, memory in memories if memory is not None and pays_zero_copy(memory.nbytes)}
        return frozenset(large - self.io.inputs.keys())

    @property
    def advances_from_external(self) -> bool:
        """Whether a next value lies in an external input, so that each call copies another buffer."""
        external = set(self.io.inputs.values())
        following = self.linked.updates.values()
        return any(var in self.layouts and self.layouts[var].memory in external for var in following)

    @functools.cached_property
    def roles(self) -> Roles:
        """The roles of the nodes, given those whose segments cannot be repeated."""
        unrepeatable = {node for _, node, segment in self.steps if segment.unsupported_reason is not None}
        already_recomputed = unrepeatable <= self.path.roles.always_recompute
        return self.path.roles if already_recomputed else find_roles(self.linked, self.path, unrepeatable)

    @functools.cached_property
    def invariant(self) -> frozenset[int]:
        """The numbers of nodes that give the same small arrays at each call, which no node overwrites.

        Their commands run once, if their memory is not shared. Many of these nodes move a number to the device that
        the host has computed from shapes alone, such as the length of an axis by which a mean is divided. Others
        depend on constants and shapes alone, such as the zero gradient of a branch that is not taken.
        """
        numbers: set[int] = set()
        invariant_arrays: set[Variable] = set()
        for number, node, segment in self.steps:
            inputs = filter(on_device, self.path.inputs_of(node))
            varies = not all(isinstance(var, Constant) or var in invariant_arrays for var in inputs)
            if varies or node in self.roles.value_dependent:
                continue
            small = segment.allocated and sum(memory.nbytes for memory in segment.allocated) <= _MAX_INVARIANT_BYTES
            unchanged = all(on_device(var) and var not in self.linked.exposed for var in node.outputs)
            if segment.commands and small and unchanged:
                numbers.add(number)
                invariant_arrays.update(node.outputs)
        return frozenset(numbers)


def record(linked: LinkedFunction, recorder: BudgetedRecorder, first: Round | None = None) -> Recording:
    """Run a function's nodes, and record their commands.

    The recorder may raise. `first` is the first round, if the early conditions have been evaluated. From the first node
    on that overwrites an input of the function, the recorder holds the commands back: the caller enqueues them.
    """
    branches = linked.branches
    first = first or branches.first(linked.run)
    recording = Recording(linked)
    copies: dict[Variable, Any] = {}
    for var in linked.inputs:
        _note(recording, recorder, var, linked.value(var))
        if var in recording.values:
            recording.given[var] = recording.values.pop(var)

    def compute(number: int) -> None:
        node = linked.nodes[number]
        if number in branches.final and recorder.held is None:
            commit_point()
            recorder.held = HeldCommands()
        with recorder.node(node) as segment:
            linked.run(number)
        recording.segments.append(segment)
        for var in node.inputs:
            if var.owner is None and var not in recording.layouts and on_device(var):  # a constant
                recording.layouts[var] = recorder.layout(linked.value(var))
        for var in node.outputs:
            _note(recording, recorder, var, linked.value(var))
            if var in recording.values and node not in surely_watched:
                copies[var] = copy.copy(linked.value(var))

    # Where rounds follow, only the whole path tells which nodes are watched.
    surely_watched = frozenset() if first.asked else branches.path(first).roles.value_dependent
    recording.path = branches.walk(compute, first)
    watched = recording.path.roles.value_dependent
    recording.fixed = {var: value for var, value in copies.items() if var.owner not in watched}
    return recording


def _note(recording: Recording, recorder: Recorder, var: Variable, value: Any) -> None:
    if isinstance(value, Array):
        recording.layouts[var] = recorder.layout(value)
    else:
        recording.values[var] = kept(value)


def kept(value: Any) -> Any:
    """Return a copy of a small array, to compare later values with; None, which equals no value, for others."""
    if isinstance(value, np.ndarray | np.generic) and value.size <= COMPARED and value.dtype != object:
        return np.array(value)
    return None


def same(value: Any, before: Any) -> bool:
    """Tell whether a value certainly equals the earlier one that `kept` has copied."""
    if before is None or not isinstance(value, np.ndarray | np.generic) or value.shape != before.shape:
        return False
    return value.tobytes() == before.tobytes()

"""Records one call of a function: the commands of each node, and the layouts and values of its variables.

:func:`record` runs the nodes, and returns a :class:`Recording`, which holds the layouts of the device arrays that the
call has made, not the arrays; so the call needs no more memory than any other.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optdb.codegen.kernels.sequencing import Sequencer
from optdb.host.api.config import config
from optdb.host.api.graph import Apply, Constant, Variable
from optdb.opencl.planning.budget import BudgetedRecorder
from optdb.opencl.planning.linked import LinkedFunction
from optdb.opencl.planning.moving_views import copy_views, moving_views
from optdb.opencl.planning.paths import Path, Round
from optdb.opencl.planning.roles import Roles, on_device
from optdb.opencl.planning.tables import NodeTable, tables_of
from optdb.runtime.arrays import Array
from optdb.runtime.buffer_assignment import IOBinding
from optdb.runtime.commands import Memory
from optdb.runtime.holding import HeldCommands
from optdb.runtime.host_buffers import pays_zero_copy
from optdb.runtime.merging import may_be_merged
from optdb.runtime.rebinding import bind_io
from optdb.runtime.recording import ArrayLayout, Recorder, Segment
from optdb.runtime.sigint import commit_point

#: Host values with more elements are not compared, but count as changed.
COMPARED = 1 << 14
#: So many of the first elements tell most values that have changed.
_COMPARED_FIRST = 64
#: The most bytes of a node whose memory is never reused; larger results share memory with others.
_MAX_INVARIANT_BYTES = 1 << 18


@dataclass(eq=False)
class Recording:
    """The record of one call."""

    linked: LinkedFunction
    #: The nodes that it computed.
    path: Path = field(init=False)
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
    #: The tables of nodes that see values of the host through them alone, by the numbers of the nodes.
    tables: dict[int, list[NodeTable]] = field(default_factory=dict)
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
        roles = self.linked.roles(self.path)
        return roles if unrepeatable <= roles.always_recompute else self.linked.roles(self.path, unrepeatable)

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
            if self._may_be_kept(node, segment):
                numbers.add(number)
                invariant_arrays.update(node.outputs)
        return frozenset(numbers)

    @functools.cached_property
    def kept_uploads(self) -> frozenset[int]:
        """The numbers of guarded nodes whose small arrays stay on the device while their host inputs do not change.

        They move values of the host to the device, which depend on such as the shape of a value-dependent array. Their
        memory is not shared, and no node overwrites it. Nodes whose commands may be held back, and dropped, are not
        among them: nobody would know what is in their memory.
        """
        early = itertools.islice(self.steps, self.path.final)
        return frozenset(
            number
            for number, node, segment in early
            if node in self.roles.value_dependent
            and node not in self.roles.always_recompute
            and not any(map(on_device, self.path.inputs_of(node)))
            and self._may_be_kept(node, segment)
        )

    def _may_be_kept(self, node: Apply, segment: Segment) -> bool:
        """Tell whether a node gives small new arrays on the device, which no node overwrites and no caller sees."""
        small = segment.allocated and sum(memory.nbytes for memory in segment.allocated) <= _MAX_INVARIANT_BYTES
        unchanged = all(on_device(var) and var not in self.linked.exposed for var in node.outputs)
        return bool(segment.commands and small and unchanged)


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
            copy_views(node, linked, moving)
        recording.segments.append(segment)
        tables = tables_of(node, segment, linked.value)
        if tables and linked.overwritten.isdisjoint(table.var for table in tables):
            recording.tables[number] = tables
        segment.tables.clear()
        for var in node.inputs:
            if var.owner is None and var not in recording.layouts and on_device(var):  # a constant
                recording.layouts[var] = recorder.layout(linked.value(var))
        for var in node.outputs:
            _note(recording, recorder, var, linked.value(var))
            if var in recording.values and node not in surely_watched:
                copies[var] = copy.copy(linked.value(var))

    # Where rounds follow, only the whole path tells which nodes are watched.
    surely_watched = frozenset() if first.asked else linked.roles(branches.path(first)).value_dependent
    moving = moving_views(linked, surely_watched)
    recording.path = branches.walk(compute, first)
    watched = linked.roles(recording.path).value_dependent
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
    first = slice(_COMPARED_FIRST)
    if value.size > _COMPARED_FIRST and value.flat[first].tobytes() != before.flat[first].tobytes():
        return False
    return value.tobytes() == before.tobytes()

"""Records one call of a function: the nodes' commands, the layouts of device values (not the arrays), and host values.

The memory of a function's values is counted against a budget, because some drivers grant any allocation, and fail once
the memory is used. The counted memory includes the function's inputs, but nothing that belongs to other functions or
processes.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optdb.device.launches.sequential import may_be_merged
from optdb.device.plans.linked import LinkedFunction, Node, Path, Roles, Round, ValueId
from optdb.numpy_types import HostArray
from optdb.runtime.all_reduce import EnqueueAllReduce
from optdb.runtime.arrays import Array
from optdb.runtime.arrays import copy as copy_array
from optdb.runtime.buffer_assignment import Check, IOBinding, bind_io
from optdb.runtime.commands import EnqueueUpload, Memory
from optdb.runtime.deferred import TableSource
from optdb.runtime.dispatch import HeldCommands, enqueue, keep_event
from optdb.runtime.host_buffers import pays_zero_copy
from optdb.runtime.library import cl
from optdb.runtime.recording import ArrayLayout, Recorder, Segment
from optdb.runtime.sigint import commit_point

#: The maximum number of elements of a host value that is compared; larger values count as changed.
COMPARED = 1 << 14
#: The number of leading elements that are compared first, since they reveal most changes.
_COMPARED_FIRST = 64
#: The maximum size in bytes of a node's results that are kept in separate memory.
_MAX_INVARIANT_BYTES = 1 << 18
#: The maximum size in bytes of a view that is copied because its offset changes between calls, for devices that share
#: the host's memory and for other devices.
MAX_SHARED_VIEW_BYTES, MAX_VIEW_BYTES = 1 << 20, 1 << 26


@dataclass(frozen=True, eq=False)
class NodeTable:
    """A lookup table that kernels read instead of a host value, and that a call uploads without running the node."""

    #: The host variable, with the shape and dtype of its recorded value.
    var: ValueId
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    #: Computes the table from a value with the recorded shape and dtype.
    source: TableSource
    #: The table on the device; only the plan writes it.
    array: Array

    def of(self, value: Any) -> HostArray | None:
        """Return the table for a host value; None if the table cannot have the recorded shape and dtype."""
        if not isinstance(value, np.ndarray) or value.shape != self.shape or value.dtype != self.dtype:
            return None
        try:
            return np.ascontiguousarray(self.source.of(value))
        except (IndexError, TypeError, ValueError):
            return None  # the node will run and raise a better error

    def write(self, table: HostArray) -> None:
        """Upload a table for the kernels that are enqueued next; the caller must not modify the table."""
        if not table.size:
            return
        array = self.array
        command = EnqueueUpload(array.queue, array.base_data, array.offset, table, is_blocking=False)
        enqueue(command)
        keep_event(command)


@dataclass(eq=False)
class Recording:
    """The recording of one call."""

    linked: LinkedFunction
    path: Path = field(init=False)
    segments: list[Segment] = field(default_factory=list)
    #: Maps a device value to its layout.
    layouts: dict[ValueId, ArrayLayout] = field(default_factory=dict)
    #: Maps a host value to a copy made by `kept`.
    values: dict[ValueId, Any] = field(default_factory=dict)
    #: Maps each host output of the nodes that are not value-dependent to the output's full value.
    fixed: dict[ValueId, Any] = field(default_factory=dict)
    #: Maps a host input of the function to its value.
    given: dict[ValueId, Any] = field(default_factory=dict)
    #: Maps a node's number to its lookup tables, if the node reads host values only through these tables.
    tables: dict[int, list[NodeTable]] = field(default_factory=dict)
    io: IOBinding = field(default_factory=IOBinding)

    @property
    def steps(self) -> Iterator[tuple[int, Node, Segment]]:
        return ((number, node, segment) for (number, node), segment in zip(self.path.steps, self.segments, strict=True))

    def memories(self, values: Iterable[ValueId]) -> list[Memory]:
        found = (self.layouts[value].memory for value in values if value in self.layouts)
        return [memory for memory in found if memory is not None]

    def bind_io(self) -> None:
        """Decide how inputs and outputs are bound, and drop the buffers of external inputs.

        Raises
        ------
        ValueError
            If inputs that may be external share a buffer, which the function's caller must prevent.
        """
        linked, layouts = self.linked, self.layouts
        outputs = {var: layouts[var] for var in linked.external_outputs if var in layouts}
        next_values = {layouts[var].memory for var in linked.updates.values() if var in layouts}
        merges = linked.options().merge_launches != "never"
        commands = (command for segment in self.segments for command in segment.commands)
        mergeable = [command for command in commands if merges and may_be_merged(command)]
        self.io = bind_io(self._input_memories, outputs, next_values, mergeable)

    @property
    def _input_memories(self) -> dict[ValueId, Memory | None]:
        return {var: self.layouts[var].memory for var in self.linked.rebindable_inputs}

    @property
    def copied_inputs(self) -> frozenset[ValueId]:
        """The inputs that are large enough to be external, but cheaper to copy."""
        memories = self._input_memories.items()
        large = {var for var, memory in memories if memory is not None and pays_zero_copy(memory.nbytes)}
        return frozenset(large - self.io.inputs.keys())

    @property
    def updates_from_external(self) -> bool:
        """Whether a next value is in an external input's memory, so that calls copy it from different buffers."""
        external = set(self.io.inputs.values())
        following = self.linked.updates.values()
        return any(var in self.layouts and self.layouts[var].memory in external for var in following)

    @functools.cached_property
    def roles(self) -> Roles:
        """The roles of the nodes; nodes whose segments cannot be repeated always run."""
        unrepeatable = {node for _, node, segment in self.steps if segment.unsupported_reason is not None}
        roles = self.linked.roles(self.path)
        return roles if unrepeatable <= roles.always_recompute else self.linked.roles(self.path, unrepeatable)

    @functools.cached_property
    def invariant(self) -> frozenset[int]:
        """The numbers of nodes that run once, because their results are small and never change.

        An example is the node that computes the number of elements in a mean.
        """
        linked = self.linked
        numbers: set[int] = set()
        invariant_arrays: set[ValueId] = set()
        for number, node, segment in self.steps:
            inputs = filter(linked.on_device, self.path.inputs_of(node))
            varies = not all(var in linked.constants or var in invariant_arrays for var in inputs)
            if varies or node in self.roles.value_dependent:
                continue
            if self._may_be_kept(node, segment):
                numbers.add(number)
                invariant_arrays.update(node.outputs)
        return frozenset(numbers)

    @functools.cached_property
    def kept_nodes(self) -> frozenset[int]:
        """The numbers of the nodes whose results are kept in separate memory."""
        return self.invariant | self.kept_uploads

    @property
    def kept_memories(self) -> list[Memory]:
        kept = (segment for number, _, segment in self.steps if number in self.kept_nodes)
        return [memory for segment in kept for memory in segment.allocated]

    @functools.cached_property
    def kept_uploads(self) -> frozenset[int]:
        """The guarded nodes whose small arrays are kept in separate memory while host inputs are unchanged.

        Nodes whose commands may be held back and then dropped are excluded, because the content of their arrays would
        be unknown.
        """
        early = itertools.islice(self.steps, self.path.final)
        return frozenset(
            number
            for number, node, segment in early
            if node in self.roles.value_dependent
            and node not in self.roles.always_recompute
            and not any(map(self.linked.on_device, self.path.inputs_of(node)))
            and self._may_be_kept(node, segment)
        )

    def _may_be_kept(self, node: Node, segment: Segment) -> bool:
        """Return whether a node only creates small device arrays that no node overwrites and no caller gets."""
        # An all-reduce must run in each call, because the other devices wait for it.
        if any(isinstance(command, EnqueueAllReduce) for command in segment.commands):
            return False
        small = segment.allocated and sum(memory.nbytes for memory in segment.allocated) <= _MAX_INVARIANT_BYTES
        linked = self.linked
        unchanged = all(linked.on_device(var) and var not in linked.exposed for var in node.outputs)
        return bool(segment.commands and small and unchanged)


def record(linked: LinkedFunction, recorder: BudgetedRecorder, first: Round) -> Recording:
    """Run a function's nodes, starting with the round `first`, and record their commands.

    Starting with the first node that overwrites an input of the function, the recorder holds commands back, and the
    caller enqueues them.
    """
    branches = linked.branches
    recording = Recording(linked)
    copies: dict[ValueId, Any] = {}
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
            _copy_views(node, linked, moving)
        recording.segments.append(segment)
        tables = _tables_of(linked, node, segment)
        if tables and linked.overwritten.isdisjoint(table.var for table in tables):
            recording.tables[number] = tables
        segment.tables.clear()
        for var in node.inputs:
            if var not in linked.producers and var not in recording.layouts and linked.on_device(var):  # a constant
                recording.layouts[var] = recorder.layout(linked.value(var))
        for var in node.outputs:
            _note(recording, recorder, var, linked.value(var))
            if var in recording.values and node not in surely_watched:
                copies[var] = copy.copy(linked.value(var))

    # The value-dependent nodes are known only when all conditions have been evaluated.
    surely_watched = frozenset() if first.asked else linked.roles(branches.path(first)).value_dependent
    moving = _moving_views(linked, surely_watched)
    recording.path = branches.walk(compute, first)
    watched = linked.roles(recording.path).value_dependent
    recording.fixed = {
        var: value for var, value in copies.items() if linked.nodes[linked.producers[var]] not in watched
    }
    return recording


def _tables_of(linked: LinkedFunction, node: Node, segment: Segment) -> list[NodeTable]:
    """Return the tables of a node that has just run; an empty list unless it reads host values only through tables."""
    if not node.reads_tables_alone or segment.unsupported_reason is not None:
        return []
    value = linked.value
    seen = [var for var in node.inputs if not (linked.on_device(var) or var in linked.constants)]
    found = [
        NodeTable(var, value(var).shape, value(var).dtype, source.without_root(), array)
        for source, array in segment.tables
        for var in seen
        if value(var) is source.root
    ]
    return found if {table.var for table in found} == set(seen) else []


def _note(recording: Recording, recorder: Recorder, var: ValueId, value: Any) -> None:
    if isinstance(value, Array):
        recording.layouts[var] = recorder.layout(value)
    else:
        recording.values[var] = kept(value)


def _moving_views(linked: LinkedFunction, value_dependent: Collection[Node]) -> frozenset[ValueId]:
    """Return the views whose offsets change between calls, such as a batch selected from a data set.

    If the view is copied, the kernel arguments of the nodes that read it do not change, so these nodes need not run in
    Python.
    """
    numbers = {value: number for value, number in linked.producers.items() if linked.nodes[number] in value_dependent}

    def may_change(var: ValueId) -> bool:
        on_host = not (linked.on_device(var) or var in linked.constants)
        return on_host and (var in numbers or var not in linked.producers)

    return frozenset(
        var for node in value_dependent if any(map(may_change, node.inputs)) for var in node.copyable_views
    )


def _copy_views(node: Node, linked: LinkedFunction, moving: Collection[ValueId]) -> None:
    """Replace each output of a node with a copy if the output is in `moving`, is small and is C-contiguous."""
    for var in node.outputs:
        value = linked.value(var)
        if var in moving and isinstance(value, Array) and value.flags.c_contiguous:
            shares = linked.contexts[var].profile.shares_host_memory
            if value.nbytes <= (MAX_SHARED_VIEW_BYTES if shares else MAX_VIEW_BYTES):
                linked.cells[var][0] = copy_array(value)


def kept(value: Any) -> Any:
    """Return a copy of a small array for later comparison; return None, which equals no value, for any other value."""
    if isinstance(value, np.ndarray | np.generic) and value.size <= COMPARED and value.dtype != object:
        return np.array(value)
    return None


def same(value: Any, before: Any) -> bool:
    """Return whether a value certainly equals an earlier value from `kept`."""
    if before is None or not isinstance(value, np.ndarray | np.generic) or value.shape != before.shape:
        return False
    first = slice(_COMPARED_FIRST)
    if value.size > _COMPARED_FIRST and value.flat[first].tobytes() != before.flat[first].tobytes():
        return False
    return bool(value.tobytes() == before.tobytes())


#: An error message names at most this many values, the largest first.
_NAMED = 5
_INTERMEDIATE = "an intermediate value"


def allowed(context: cl.Context, fraction: float) -> int:
    """Return how many bytes a function may use: a fraction of the device's memory."""
    return int(context.devices[0].global_mem_size * fraction)


def _given_bytes(linked: LinkedFunction, context: cl.Context) -> int:
    """Return how many bytes the function's inputs and constants use in a context, counting each buffer once."""
    values = _arrays(linked, context, lambda var: var not in linked.producers)
    return sum({array.base_data.int_ptr: array.base_data.size for _, array in values}.values())


def _arrays(
    linked: LinkedFunction, context: cl.Context, wanted: Callable[[ValueId], bool]
) -> Iterator[tuple[ValueId, Array]]:
    """Yield the `wanted` values that are currently arrays in the context, each with its array."""
    for var in filter(wanted, linked.cells):
        value = linked.value(var)
        if isinstance(value, Array) and value.base_data is not None and value.context == context:
            yield var, value


class BudgetedRecorder(Recorder):
    """Records a function whose inputs are in cells; raises MemoryError if the function exceeds its budget."""

    def __init__(self, linked: LinkedFunction) -> None:
        super().__init__()
        self._linked = linked
        self._in_loop = False
        self._given: dict[cl.Context, int] = {}
        #: Upper bound on the bytes that the function has allocated and still holds, by context.
        self._held_nbytes: dict[cl.Context, int] = {}

    def allocate(self, buffer: cl.Buffer, nbytes: int) -> Memory:
        """Record a new buffer and return its memory; raise if the function would exceed the device's budget."""
        memory = super().allocate(buffer, nbytes)
        context = memory.context
        if context not in self._given:
            self._given[context] = _given_bytes(self._linked, context)
        self._held_nbytes[context] = self._held_nbytes.get(context, 0) + memory.nbytes
        fraction = self._linked.options().device_memory_fraction
        if self._given[context] + self._held_nbytes[context] > allowed(context, fraction):
            held = self._held(memory)
            self._held_nbytes[context] = sum(allocation.nbytes for allocation in held)
            sizes = (
                (self._linked.describe(*origin) if origin else _INTERMEDIATE, allocation.nbytes)
                for allocation, origin in held.items()
            )
            _require(context, fraction, self._held_nbytes[context], self._given[context], sizes)
        return memory

    def node(self, node: Node) -> AbstractContextManager[Segment]:
        self._in_loop = node.is_loop
        return self.segment()

    def _held(self, last: Memory) -> dict[Memory, tuple[ValueId, ArrayLayout] | None]:
        """Map each memory block that is still held to its value, if any; the block `last` has just been allocated."""
        # A loop's steps release the memory that they allocate.
        fresh = [last] if self._in_loop else self._segment.allocated
        held: dict[Memory, Any] = dict.fromkeys(memory for memory in fresh if memory.context == last.context)
        for var, array in _arrays(self._linked, last.context, self._linked.producers.__contains__):
            layout = self.layout(array)
            if layout.memory is not None and layout.memory.buffer is None:
                held[layout.memory] = var, layout
        return held


def check_plan(linked: LinkedFunction, layouts: dict[ValueId, ArrayLayout]) -> Check:
    """Return the check that `BufferAssignment` calls; it raises if a plan for these values exceeds the budget."""

    def check(context: cl.Context, nbytes: int, memories: Iterable[Memory]) -> None:
        names = {layout.memory: (var, layout) for var, layout in reversed(layouts.items())}
        describe, fraction = linked.describe, linked.options().device_memory_fraction
        sizes = ((describe(*names[memory]) if memory in names else _INTERMEDIATE, memory.nbytes) for memory in memories)
        _require(context, fraction, nbytes, _given_bytes(linked, context), sizes)

    return check


def _require(context: cl.Context, fraction: float, nbytes: int, given: int, sizes: Iterable[tuple[str, int]]) -> None:
    """Raise MemoryError if the budget is exceeded; name the largest values and possible remedies."""
    if nbytes + given <= allowed(context, fraction):
        return
    device = context.devices[0]
    limit = f"{device.global_mem_size:,} bytes" + (
        f", of which the fraction {fraction:g} may be used" if fraction < 1 else ""
    )
    largest = sorted(sizes, key=lambda entry: -entry[1])[:_NAMED]
    listed = "\n".join(f"  {size:,} bytes: {name}" for name, size in largest)
    raise MemoryError(
        f"the values of this function need {nbytes:,} bytes at once, besides {given:,} bytes of inputs, shared "
        f"variables and constants, but {device.name.strip()} has {limit}.\n"
        "The largest:\n"
        f"{listed}\n"
        "The cure: use smaller inputs, such as fewer examples in a batch, float32 instead of float64, a device with "
        "more memory, or a larger optdb.device_memory_fraction"
    )

"""A function's commands with buffers assigned, and the nodes that still compute in Python between them.

A :class:`Plan` is made of a recording, for the shapes and the branches of one call. Steady nodes become commands, each
other node a :class:`GuardedStep`, which compares the values or addresses of the node's inputs with the recording. If
nothing has changed, its commands are repeated, else the node computes. Its outputs are then moved into the plan's
buffers, where later nodes read them; only if one does not fit, as with another shape, the later nodes compute in turn.
A :class:`CommandSegment` compares once for many steps. The plan enqueues the commands that a step returns as ``due``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from optdb.codegen.kernels.persistent_launches import PersistentMerging, residency
from optdb.codegen.kernels.sequencing import Sequencer
from optdb.host.api.config import config
from optdb.host.api.graph import Apply, Variable
from optdb.host.functions.call_memory import CallMemory
from optdb.opencl.planning.accesses import CommandAccesses
from optdb.opencl.planning.budget import check_plan
from optdb.opencl.planning.donation import donated
from optdb.opencl.planning.paths import Branches, Path, Round
from optdb.opencl.planning.recording import Recording, same
from optdb.opencl.registry import get_context
from optdb.runtime.arrays import Array, DeviceArray, copy, overwrite
from optdb.runtime.buffer_assignment import BufferAssignment, CommandGroup, Liveness, liveness
from optdb.runtime.commands import Command, CommandList, Memory
from optdb.runtime.holding import enqueue_bound
from optdb.runtime.merging import Merging
from optdb.runtime.recording import ArrayLayout, Segment
from optdb.runtime.sigint import commit_point


class Plan:
    """The commands and steps of a function for inputs of some shapes, ready to be repeated."""

    def __init__(self, recording: Recording) -> None:
        self.linked = linked = recording.linked
        self._recording = recording
        live = plan_liveness(recording)
        #: The buffers of its values.
        check = check_plan(linked, recording.layouts)
        self.buffers = BufferAssignment(live, check, recording.io, donated(recording, live))
        #: How many commands a run enqueues if nothing changes, and none is merged.
        self.commands = sum(
            len(segment.commands)
            for number, _, segment in recording.steps
            if number not in recording.invariant | recording.kept_uploads
        )
        #: Variable to its array, for all outputs of nodes on the device.
        self._arrays = {
            var: self.buffers.array(layout) for var, layout in recording.layouts.items() if var.owner is not None
        }
        self._accesses = CommandAccesses(self.buffers)
        before, final = self._bound_steps()
        #: Steps stay alone if they compute each time, or see a host input of the function, or a result of such a step.
        changing = set(recording.given)
        self._halves = in_segments(before, changing), in_segments(final, changing)
        self._steps = list(itertools.chain(*self._halves))
        #: The variables whose values are not the recorded ones, in the present call.
        self._changed: set[Variable] = set()
        self._segments = [step for step in self._steps if isinstance(step, CommandSegment)]
        self._merging = self._chosen_merging([segment.commands for segment in self._segments])
        # After a call, `commit` and `release` may have replaced results by copies.
        emptied = {id(cell) for cell in linked.clear_before} | {id(linked.cells[var]) for var in linked.outputs}
        cells = [(linked.cells[var], array) for var, array in self._arrays.items()]
        self._emptied = [(cell, array) for cell, array in cells if id(cell) in emptied]

    def _bound_steps(self) -> tuple[list[Step], list[Step]]:
        """Return steps with bound commands: those before any that overwrites inputs of the function, and the others.

        Enqueue the commands that no later run repeats, and those of uploads that are kept.
        """
        recording, path = self._recording, self._recording.path
        before: list[Step] = []
        steps = before
        for index, (number, node, segment) in enumerate(recording.steps):
            guards = [round_ for start, round_ in path.guards if start == index]
            steps += [BranchGuard(self.linked.branches, path, round_) for round_ in guards]
            if index == path.final:
                steps = []
            bound = CommandList(map(self.buffers.bind, segment.commands))
            self._accesses.note(segment.commands, bound, _read_only(recording, node, segment))
            if number in recording.invariant:
                bound.enqueue()
            else:
                steps.append(self._step(number, node, segment, bound))
        return before, [] if steps is before else steps

    def _step(self, number: int, node: Apply, segment: Segment, bound: CommandList) -> Step:
        """Return the step of a node that later runs repeat."""
        if number in self._recording.kept_uploads:
            bound.enqueue()
            return KeptUpload(self._recording, number, node, segment, CommandList(), self._arrays)
        if node not in self._recording.roles.value_dependent:
            return Step(bound)
        return GuardedStep(self._recording, number, node, segment, bound, self._arrays)

    def _chosen_merging(self, segments: Sequence[CommandList]) -> Merging | PersistentMerging:
        """Return what merges small launches: into persistent ones where the device has them."""
        merge, persist = self.linked.merge_launches, self.linked.persistent_launches
        names = {var.type.context_name for var in self._arrays}
        chosen = {context: residency(context, config.optdb.persistent_launches) for context in map(get_context, names)}
        residencies = {context.queue.int_ptr: resident for context, resident in chosen.items() if resident is not None}
        if merge == "never" or not residencies:
            return Merging(segments, merge, Sequencer())
        return PersistentMerging(segments, residencies, self._accesses, persist)

    def load(self) -> None:
        """Put the plan's arrays and values into the cells of the function."""
        for var, array in self._arrays.items():
            self.linked.cells[var][0] = array
        # Nodes of the host, such as Shape_i, write into what they find in their cells: they get copies.
        for var, value in self._recording.fixed.items():
            self.linked.cells[var][0] = deepcopy(value)
        for step in self._steps:
            step.restore()

    def unload(self) -> None:
        """Take the plan's arrays out of the cells: the next computation must not write to them."""
        for var in self._arrays:
            self.linked.cells[var][0] = None

    def run(self) -> None:
        """Run the steps before those that overwrite inputs of the function.

        Raise `BranchTaken` if the call takes another path.
        """
        if not self._merging.done:
            self._merge()
        self.restore_cells()
        self.rebind_io()
        given = self._recording.given
        self._changed = {var for var, before in given.items() if not same(self.linked.value(var), before)}
        for step in self._halves[0]:
            enqueue_bound(step.due(self._changed))

    @property
    def final_computes(self) -> bool:
        """Whether one of the other steps has to compute in the present call, and may raise."""
        changed = self._changed
        return any(step.computes or not changed.isdisjoint(step.inputs) for step in self._halves[1])

    def run_final(self) -> None:
        """Run the other steps, after `run`.

        If one computes, the caller holds their commands back until all that may raise is done.
        """
        commit_point()
        for step in self._halves[1]:
            enqueue_bound(step.due(self._changed))

    @property
    def enqueued(self) -> int:
        """How many commands a run enqueues now if nothing changes: merged ones count once."""
        return sum(len(step.commands) for step in self._steps)

    def expect(self, times: int) -> bool:
        """Credit `times` calls that may run without Python; return whether one has to run with it first."""
        return self._merging.expect(times)

    def _merge(self) -> None:
        """Time or merge small launches, if that is due before this call."""
        merged = self._merging.next()
        if merged is not None:
            for segment, commands in zip(self._segments, merged, strict=True):
                segment.commands = CommandList(commands)

    def rebind_io(self) -> None:
        """Rebind external memories to the buffers of this call's inputs and outputs."""
        io = self.buffers.io
        for var, memory in io.inputs.items():
            self.buffers.rebind(memory, self.linked.value(var).base_data)
        for var, memory in io.outputs.items():
            buffer = self.linked.external_outputs[var](self._recording.layouts[var])
            self.buffers.rebind(memory, self.buffers.fallback(memory) if buffer is None else buffer)

    def drop_external(self) -> None:
        """Release the buffers of the inputs and outputs of the last call; the next call binds new ones."""
        for memory in self.buffers.io.external:
            self.buffers.rebind(memory, None)

    def restore_cells(self) -> None:
        """Put the plan's arrays into those cells that may have lost them since the last call."""
        for cell, array in self._emptied:
            cell[0] = array

    def unconditional_commands(self) -> CommandList | None:
        """Return all commands of a next run with the inputs of the last one; None if a node would compute in it."""
        repeated = [step.repeated(self._changed) for step in self._steps]
        return None if None in repeated else CommandList(itertools.chain(*repeated))

    def release(self, borrowed: frozenset[int]) -> bool:
        """Copy the results for the caller, except the `borrowed` outputs: the next call overwrites the plan's arrays.

        Return whether a call with the same arrays may have to copy one.
        """
        copies = False
        for index, var in enumerate(self.linked.outputs):
            cell = self.linked.cells[var]
            if index in borrowed or not isinstance(cell[0], Array):
                continue
            copies = copies or var in self.buffers.io.outputs  # which may lie elsewhere in the next call
            if self.buffers.owns(cell[0]):
                cell[0] = copy(cell[0])
                copies = True
        return copies


def recording_memory(recording: Recording) -> CallMemory:
    """Return the memory of a recorded call on its device: liveness over nodes, and the plan's buffer assignment."""
    live = plan_liveness(recording)
    # The positions of the nodes' commands, as `liveness` counts them.
    spans, stop = [], 0
    for _, node, segment in recording.steps:
        start, stop = stop + 1, stop + 1 + len(segment.commands)
        spans.append((node, start, stop))
    change = [0] * (stop + 2)
    for memory, (first, last) in live.ranges.items():
        begin = min(first, stop)
        change[begin] += memory.nbytes
        change[min(last, stop) + 1] -= memory.nbytes
    bytes_at = list(itertools.accumulate(change))
    inputs = [var for var in recording.linked.inputs if var in recording.layouts]
    in_place = set(recording.io.inputs)
    return CallMemory(
        steps=[(node, max(bytes_at[start : stop + 1])) for node, start, stop in spans],
        arguments=sum(_nbytes(recording.layouts[var]) for var in inputs if var in in_place),
        shared=sum(_nbytes(recording.layouts[var]) for var in inputs if var not in in_place),
        constants=sum(
            _nbytes(layout)
            for var, layout in recording.layouts.items()
            if var.owner is None and var not in recording.linked.inputs
        ),
        unknown=0,
        separately=live.nbytes_without_reuse,
        buffers=live.nbytes(recording.io),
    )


def _nbytes(layout: ArrayLayout) -> int:
    return 0 if layout.memory is None else layout.memory.nbytes


def plan_liveness(recording: Recording) -> Liveness:
    """Return the liveness of the memories of a recording: those of variables live for whole nodes."""
    layouts = recording.layouts

    def memories(variables: Iterable[Variable]) -> list[Memory]:
        candidates = (layouts[var].memory for var in variables if var in layouts)
        return [memory for memory in candidates if memory is not None]

    steps = [
        CommandGroup(segment.commands, memories((*recording.path.inputs_of(node), *node.outputs)))
        for _, node, segment in recording.steps
    ]
    persistent = [
        memory
        for number, _, segment in recording.steps
        if number in recording.invariant | recording.kept_uploads
        for memory in segment.allocated
    ]
    live = liveness(steps, memories(recording.linked.outputs), set(recording.io.inputs.values()), persistent)
    # Kernels that a foreign op launches may ignore offsets: an array from `empty` begins where its buffer does.
    foreign = [node for number, node in recording.path.steps if number in recording.linked.foreign]
    alone = {memory for node in foreign for memory in memories((*node.inputs, *node.outputs))}
    return replace(live, own_buffer={*live.own_buffer, *alone})


def _read_only(recording: Recording, node: Apply, segment: Segment) -> frozenset[Memory]:
    """Return the memories of a node's inputs that its commands do not write to."""

    def memories(variables: Iterable[Variable]) -> set[Memory | None]:
        return {recording.layouts[var].memory for var in variables if var in recording.layouts}

    read = memories(recording.path.inputs_of(node)) - memories(node.outputs) - {*segment.allocated, None}
    return frozenset(read)


class Step:
    """Commands that are repeated while the guarded inputs stay the same; here, always."""

    #: Whether it computes each time.
    free = False
    #: Its outputs on the host.
    on_host: Sequence[Variable] = ()

    def __init__(self, commands: CommandList, inputs: Iterable[Variable] = ()) -> None:
        self.commands = commands
        #: The inputs that it compares.
        self.inputs = frozenset(inputs)
        #: Whether it has to compute next time, even if its inputs are unchanged.
        self.stale = False

    @property
    def computes(self) -> bool:
        """Whether it computes at the next run, even if nothing has changed."""
        return self.free or self.stale

    def restore(self) -> None:
        """Mark that the cells of host values may hold others than the recorded ones.

        The cells hold the plan's device arrays again, and the commands compute into these.
        """
        self.stale = self.stale or bool(self.on_host)

    def repeated(self, changed: set[Variable]) -> CommandList | None:
        """Return the commands that repeat what the last run did; None if the step computes.

        The variables that are `changed` had other values than the recorded ones, and still have.
        """
        return None if self.computes or not changed.isdisjoint(self.inputs) else self.commands

    def due(self, changed: set[Variable]) -> Sequence[Command]:
        """Return the commands that repeat the step; or compute it, and return none.

        Outputs whose value or address differs from the recorded one are added to `changed`.
        """
        if not (self.free or self.stale) and changed.isdisjoint(self.inputs):
            return self.commands
        self._compute(changed)
        return ()

    def _compute(self, changed: set[Variable]) -> None:
        """Compute anew; steps with guarded inputs override this."""
        raise NotImplementedError


class GuardedStep(Step):
    """A node that may have to compute in Python: each time, if it is `free`."""

    def __init__(
        self,
        recording: Recording,
        number: int,
        node: Apply,
        segment: Segment,
        commands: CommandList,
        arrays: Mapping[Variable, DeviceArray],
    ) -> None:
        super().__init__(commands, recording.path.inputs_of(node))
        self._linked = linked = recording.linked
        self._number = number
        self.free = node in recording.roles.always_recompute
        self.on_host = [var for var in node.outputs if var not in arrays]
        layouts, values = recording.layouts, recording.values
        owned = {var for var in node.outputs if var in layouts and layouts[var].memory in segment.allocated}
        #: For each output: its cell, the variable, its array in the plan if it is on the device, its recorded value
        #: from `kept` if it is on the host, and whether it has its own memory, and is no view of an input.
        self._outputs = [
            (linked.cells[var], var, arrays.get(var), values.get(var), var in owned) for var in node.outputs
        ]

    def _compute(self, changed: set[Variable]) -> None:
        self._linked.run(self._number)
        self.stale = False
        for cell, var, array, value, owns_memory in self._outputs:
            unchanged = same(cell[0], value) if array is None else _ensure_in_plan_memory(cell, array, owns_memory)
            if not unchanged:
                changed.add(var)
                self.stale = True


class KeptUpload(GuardedStep):
    """A node whose arrays stay in memory of their own while its inputs are those of the recording."""

    def repeated(self, changed: set[Variable]) -> CommandList:
        """Return no commands: the memory holds what the last run has computed."""
        return self.commands

    def _compute(self, changed: set[Variable]) -> None:
        # Until the node has computed from the recorded inputs again, no command restores the recorded values.
        self.stale = True
        differs = not changed.isdisjoint(self.inputs)
        super()._compute(changed)
        self.stale = self.stale or differs


class BranchTaken(Exception):
    """A condition differs from the plan's; no step after the `round` has run."""

    def __init__(self, round_: Round) -> None:
        super().__init__(round_)
        self.round = round_


class BranchGuard(Step):
    """Checks the conditions that are evaluated within a call, before the steps of the branches that they select."""

    #: Its conditions may change at each call.
    free = True

    def __init__(self, branches: Branches, path: Path, round_: Round) -> None:
        super().__init__(CommandList())
        self._branches, self._round = branches, round_
        #: The values on the path of the conditions that the round asks for.
        self._expected = tuple(path.rounds[-1].state[index] for index in round_.asked)

    def _compute(self, changed: set[Variable]) -> None:
        if self._branches.answers(self._round) != self._expected:
            raise BranchTaken(self._round)


class CommandSegment(Step):
    """Consecutive steps that are mostly repeated together, so that one comparison covers all of them."""

    def __init__(self, steps: Sequence[Step]) -> None:
        commands = CommandList(command for step in steps for command in step.commands)
        super().__init__(commands, frozenset().union(*(step.inputs for step in steps)))
        self._steps = steps

    def restore(self) -> None:
        """Mark that the cells of host values may hold others than the recorded ones."""
        for step in self._steps:
            step.restore()
        self.stale = self.stale or any(step.stale for step in self._steps)

    def repeated(self, changed: set[Variable]) -> CommandList | None:
        """Return the commands, merged as they may be, that repeat all steps; None if one computes."""
        return None if any(step.repeated(changed) is None for step in self._steps) else self.commands

    def _compute(self, changed: set[Variable]) -> None:
        """Let each step compare its inputs."""
        self.stale = True  # and stays so if a node raises
        for step in self._steps:
            enqueue_bound(step.due(changed))
        self.stale = any(step.stale for step in self._steps)


def in_segments(steps: Iterable[Step], changing: set[Variable]) -> list[Step]:
    """Gather consecutive steps whose inputs rarely change into segments.

    Steps stay alone if they compute each time, or compare a variable that is `changing`, as it may at each call. Their
    host outputs are added to `changing`.
    """
    gathered: list[Step] = []
    together: list[Step] = []
    for step in steps:
        if not step.free and changing.isdisjoint(step.inputs):
            together.append(step)
            continue
        changing.update(step.on_host)
        if together:
            gathered.append(CommandSegment(together))
            together = []
        gathered.append(step)
    return [*gathered, CommandSegment(together)] if together else gathered


def _ensure_in_plan_memory(cell: list[Any], array: DeviceArray, own: bool) -> bool:
    """Tell whether an output lies in the plan's array; move it there if possible."""
    value = cell[0]
    if value is array:
        return True
    if not _same_memory(value, array) and not (own and overwrite(array, value)):
        return False
    cell[0] = array
    return True


def _same_memory(value: Any, array: Array) -> bool:
    return (
        isinstance(value, Array)
        and value.shape == array.shape
        and value.strides == array.strides
        and value.offset == array.offset
        and (value.base_data is array.base_data or value.base_data == array.base_data)
    )

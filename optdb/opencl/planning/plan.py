"""A function's commands with buffers assigned, and the nodes that still compute in Python between them.

A :class:`Plan` is made of a recording, for the shapes and the branches of one call. Steady nodes become commands, each
other node a step that is guarded by what the node sees (see ``steps``).
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace

from optdb.deprecation import renamed
from optdb.host.graph import Variable
from optdb.opencl.planning.budget import check_plan
from optdb.opencl.planning.merging import Merging
from optdb.opencl.planning.recording import Recording, same
from optdb.opencl.planning.sigint import commit_point
from optdb.opencl.planning.steps import BranchGuard, CommandSegment, GuardedStep, Step, in_segments
from optdb.runtime.arrays import Array, copy
from optdb.runtime.buffer_assignment import BufferAssignment, CommandGroup, Liveness, liveness
from optdb.runtime.commands import CommandList, Memory


class Plan:
    """What a function does for inputs of some shapes, ready to be done again."""

    def __init__(self, recording: Recording) -> None:
        self.linked = linked = recording.linked
        self._recording = recording
        path = recording.path
        once = recording.invariant
        live = plan_liveness(recording)
        #: The memory of its values.
        self.buffers = BufferAssignment(live, check_plan(recording), recording.io)
        #: How many commands are enqueued if nothing changes.
        self.commands = sum(len(segment.commands) for number, _, segment in recording.steps if number not in once)
        #: Variable to its array, for all that nodes put on the device.
        self._arrays = {
            var: self.buffers.array(layout) for var, layout in recording.layouts.items() if var.owner is not None
        }
        steps: list[Step] = []
        final = path.final
        for place, (number, node, segment) in enumerate(recording.steps):
            guards = [round_ for before, round_ in path.guards if before == place]
            steps += [BranchGuard(linked.branches, path, round_) for round_ in guards]
            if place == path.final:
                final = len(steps)
            bound = CommandList(map(self.buffers.bind, segment.commands))
            if number in once:
                bound.enqueue()
            elif node not in recording.roles.value_dependent:
                steps.append(Step(bound))
            else:
                steps.append(GuardedStep(recording, number, node, segment, bound, self._arrays))
        #: Alone are those that compute each time, and those that see what the caller gives, or what such a step gives.
        changing = set(recording.given)
        early = in_segments(steps[:final], changing)
        late = in_segments(steps[final:], changing)
        self._steps = [*early, *late]
        self._halves = early, late
        self._segments = [step for step in self._steps if isinstance(step, CommandSegment)]
        self._merging = Merging([segment.commands for segment in self._segments])
        # What comes behind a call (`commit`, `release`) may have put copies in place of results.
        emptied = {id(cell) for cell in linked.clear_before} | {id(linked.cells[var]) for var in linked.outputs}
        cells = [(linked.cells[var], array) for var, array in self._arrays.items()]
        self._emptied = [(cell, array) for cell, array in cells if id(cell) in emptied]

    room = renamed("room", "buffers")

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
        """Take the plan's arrays out again: whoever computes next must not write to them."""
        for var in self._arrays:
            self.linked.cells[var][0] = None

    def run(self) -> None:
        """Do it."""
        if not self._merging.done:
            self._merge()
        self.restore_cells()
        self.rebind_io()
        changed = {var for var, before in self._recording.given.items() if not same(self.linked.value(var), before)}
        for steps in self._halves:
            for step in steps:
                for command in step.due(changed):
                    command.enqueue()
            commit_point()

    def expect(self, times: int) -> bool:
        """Credit `times` calls that may come without Python; return whether one has to be made as before."""
        return self._merging.expect(times)

    def _merge(self) -> None:
        """Time small launches, or merge them, if that is due before this call."""
        merged = self._merging.next()
        if merged is not None:
            for segment, commands in zip(self._segments, merged, strict=True):
                segment.commands = CommandList(commands)

    def rebind_io(self) -> None:
        """Let external memory be where this call has its inputs, and wants its outputs."""
        io = self.buffers.io
        for var, memory in io.inputs.items():
            self.buffers.rebind(memory, self.linked.value(var).base_data)
        for var, memory in io.outputs.items():
            buffer = self.linked.external_outputs[var](self._recording.layouts[var])
            self.buffers.rebind(memory, self.buffers.fallback(memory) if buffer is None else buffer)

    def drop_external(self) -> None:
        """Release the buffers of the inputs and outputs of the last call; the next one gives its own."""
        for memory in self.buffers.io.external:
            self.buffers.rebind(memory, None)

    def restore_cells(self) -> None:
        """Put the plan's arrays into those cells that may have lost them since the last call."""
        for cell, array in self._emptied:
            cell[0] = array

    def unconditional_commands(self) -> CommandList | None:
        """Return all commands of a next run in which nothing has changed; None if some node would compute in it."""
        if any(step.computes for step in self._steps):
            return None
        return CommandList(command for step in self._steps for command in step.commands)

    def release(self, borrowed: frozenset[int]) -> None:
        """Give the caller results of its own, but at `borrowed` places: the next call overwrites the plan's."""
        for place, var in enumerate(self.linked.outputs):
            cell = self.linked.cells[var]
            if place not in borrowed and isinstance(cell[0], Array) and self.buffers.owns(cell[0]):
                cell[0] = copy(cell[0])


def plan_liveness(recording: Recording) -> Liveness:
    """Return when each memory of a recording is needed: what variables lie in, for whole nodes."""
    layouts = recording.layouts

    def memories(variables: Iterable[Variable]) -> list[Memory]:
        found = (layouts[var].memory for var in variables if var in layouts)
        return [memory for memory in found if memory is not None]

    steps = [
        CommandGroup(segment.commands, memories((*recording.path.inputs_of(node), *node.outputs)))
        for _, node, segment in recording.steps
    ]
    persistent = [
        memory
        for number, _, segment in recording.steps
        if number in recording.invariant
        for memory in segment.allocated
    ]
    live = liveness(steps, memories(recording.linked.outputs), set(recording.io.inputs.values()), persistent)
    # Kernels that an op launches by itself may be told no offset: what `empty` returns begins where a buffer does.
    foreign = [node for number, node in recording.path.steps if number in recording.linked.foreign]
    alone = {memory for node in foreign for memory in memories((*node.inputs, *node.outputs))}
    return replace(live, own_buffer={*live.own_buffer, *alone})

"""A function's commands with buffers assigned, and the nodes that still compute in Python between them.

A :class:`Plan` is made of a recording, for the shapes and the branches of one call. Steady nodes become commands, each
other node a :class:`GuardedStep`, which compares what the node sees with the recording, in value or in place. If
nothing has changed, its commands are repeated, else the node computes. Its outputs then go where the plan has their
places, so that later nodes find them there; only if one does not fit, as another shape does not, those nodes compute in
turn. A :class:`CommandSegment` compares once for many steps. The plan enqueues what a step says is ``due``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from optdb.deprecation import renamed
from optdb.host.graph import Apply, Variable
from optdb.opencl.planning.budget import check_plan
from optdb.opencl.planning.merging import Merging
from optdb.opencl.planning.paths import Branches, Path, Round
from optdb.opencl.planning.recording import Recording, same
from optdb.opencl.planning.sigint import commit_point
from optdb.runtime.arrays import Array, DeviceArray, copy, overwrite
from optdb.runtime.buffer_assignment import BufferAssignment, CommandGroup, Liveness, liveness
from optdb.runtime.commands import Command, CommandList, Memory
from optdb.runtime.recording import Segment


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


class Step:
    """Commands that are repeated as long as nothing changes that is looked at: here, at all times."""

    #: Whether it computes each time.
    free = False
    #: What it gives on the host.
    on_host: Sequence[Variable] = ()

    def __init__(self, commands: CommandList, inputs: Iterable[Variable] = ()) -> None:
        self.commands = commands
        #: What it looks at.
        self.inputs = frozenset(inputs)
        #: Whether it has to compute next time, whatever its inputs are.
        self.stale = False

    @property
    def computes(self) -> bool:
        """Whether it computes at the next run, even if nothing has changed."""
        return self.free or self.stale

    def restore(self) -> None:
        """Take note that the cells of host values may hold others than those of the recording.

        What is on the device is in its place again, and is computed there by the commands.
        """
        self.stale = self.stale or bool(self.on_host)

    def due(self, changed: set[Variable]) -> Sequence[Command]:
        """Return the commands that repeat the step, or compute it, and return none.

        Those outputs are added to `changed` that are not where or what they were.
        """
        if not (self.free or self.stale) and changed.isdisjoint(self.inputs):
            return self.commands
        self._compute(changed)
        return ()

    def _compute(self, changed: set[Variable]) -> None:
        """Compute anew; a step that looks at something knows how."""
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
        own = {var for var in node.outputs if var in layouts and layouts[var].memory in segment.allocated}
        #: The cell of each output, the output, its place in the plan if it is on the device, what it was if it is on
        #: the host, as `kept` gives it, and whether its memory is its own, or an input's of which it is a view.
        self._outputs = [(linked.cells[var], var, arrays.get(var), values.get(var), var in own) for var in node.outputs]

    def _compute(self, changed: set[Variable]) -> None:
        self._linked.run(self._number)
        self.stale = False
        for cell, var, array, value, own in self._outputs:
            unchanged = same(cell[0], value) if array is None else _is_in_place(cell, array, own)
            if not unchanged:
                changed.add(var)
                self.stale = True


class BranchTaken(Exception):
    """A condition is not what a plan was made for; no step of the branch has been done behind a `round`."""

    def __init__(self, round_: Round) -> None:
        super().__init__(round_)
        self.round = round_


class BranchGuard(Step):
    """A look at conditions that are known only within a call, before the steps of the branches that they choose."""

    #: Its conditions may change at each call.
    free = True

    def __init__(self, branches: Branches, path: Path, round_: Round) -> None:
        super().__init__(CommandList())
        self._branches, self._round = branches, round_
        #: What the conditions are on the path, that the round asks for.
        self._expected = tuple(path.rounds[-1].state[place] for place in round_.asked)

    def _compute(self, changed: set[Variable]) -> None:
        if self._branches.answers(self._round) != self._expected:
            raise BranchTaken(self._round)


class CommandSegment(Step):
    """Steps behind each other that are mostly repeated together, so that one look is enough for all of them."""

    def __init__(self, steps: Sequence[Step]) -> None:
        commands = CommandList(command for step in steps for command in step.commands)
        super().__init__(commands, frozenset().union(*(step.inputs for step in steps)))
        self._steps = steps

    def restore(self) -> None:
        """Take note that the cells of host values may hold others than those of the recording."""
        for step in self._steps:
            step.restore()
        self.stale = self.stale or any(step.stale for step in self._steps)

    def _compute(self, changed: set[Variable]) -> None:
        """Let each step look for itself."""
        self.stale = True  # and stays so if a node raises
        for step in self._steps:
            for command in step.due(changed):
                command.enqueue()
        self.stale = any(step.stale for step in self._steps)


def in_segments(steps: Iterable[Step], changing: set[Variable]) -> list[Step]:
    """Gather steps that stay the same together.

    Steps stay alone that compute each time, or that look at what is `changing`, as it may at each call. What these give
    on the host is added to that.
    """
    found: list[Step] = []
    together: list[Step] = []
    for step in steps:
        if not step.free and changing.isdisjoint(step.inputs):
            together.append(step)
            continue
        changing.update(step.on_host)
        if together:
            found.append(CommandSegment(together))
            together = []
        found.append(step)
    return [*found, CommandSegment(together)] if together else found


def _is_in_place(cell: list[Any], array: DeviceArray, own: bool) -> bool:
    """Tell whether an output lies in its place; bring it there if that can be done."""
    got = cell[0]
    if got is array:
        return True
    if not _lies_like(got, array) and not (own and overwrite(array, got)):
        return False
    cell[0] = array
    return True


def _lies_like(one: Any, other: Array) -> bool:
    return (
        isinstance(one, Array)
        and one.shape == other.shape
        and one.strides == other.strides
        and one.offset == other.offset
        and (one.base_data is other.base_data or one.base_data == other.base_data)
    )

"""A plan: a function's commands with assigned buffers, and nodes that still run in Python.

Each node of a recording becomes a step (`optdb.device.plans.steps`); a run enqueues the commands that the steps return.

A call updates a variable completely or not at all, so a next value is usually copied at the very end. A next value
needs no copy if it is written after all reads of the current value, and in the plan's *final* part, in which nothing
raises an error: the current value's buffer is then *donated* to the next value. The next value of a *scratch* variable,
whose current value is never read, may be written at any time.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

from optdb.device.launches import persistent, residencies
from optdb.device.launches.merging import Accesses, CommandAccesses, Course, LaunchMerging, Pause, Segments, body_of
from optdb.device.launches.sequential import sequential_course
from optdb.device.plans.linked import LinkedFunction, Node, ValueId
from optdb.device.plans.recording import Recording, check_plan, same
from optdb.device.plans.steps import (
    BranchGuard,
    CommandSegment,
    GuardedStep,
    KeptUpload,
    PlanStep,
    TableUploads,
    in_segments,
)
from optdb.device.plans.updates import MAX_RECORDINGS, CommitUpdates
from optdb.runtime.all_reduce import EnqueueAllReduce
from optdb.runtime.arrays import Array, copy, lies_in_order, root_of
from optdb.runtime.buffer_assignment import BufferAssignment, CommandGroup, Liveness, liveness
from optdb.runtime.commands import CommandList, EnqueueKernel, Memory
from optdb.runtime.context import Context
from optdb.runtime.dispatch import enqueue_bound
from optdb.runtime.library import cl
from optdb.runtime.recording import Segment
from optdb.runtime.sigint import commit_point

#: A function that gets the first commands of a run, and returns whether it has enqueued them.
Before = Callable[[CommandList], bool]


class Plan:
    """The commands and steps of a function for fixed input shapes."""

    def __init__(self, recording: Recording) -> None:
        self.linked = linked = recording.linked
        self._recording = recording
        live = plan_liveness(recording)
        donation = find_donation(recording, live)
        #: Index of the first step that may overwrite inputs of the function.
        self._final = donation.final
        check = check_plan(linked, recording.layouts)
        self.buffers = BufferAssignment(live, check, recording.io, donation.places)
        #: The number of commands that a run without merged launches enqueues if nothing has changed.
        self.commands = sum(
            len(segment.commands) for number, _, segment in recording.steps if number not in recording.kept_nodes
        )
        #: Maps a device output of a node to its array.
        self._arrays = {
            var: self.buffers.array(layout) for var, layout in recording.layouts.items() if var in linked.producers
        }
        self._accesses = CommandAccesses(self.buffers)
        before, final = self._bound_steps()
        #: Steps that read one of these variables are not merged into segments.
        changing = set(recording.given)
        self._halves = in_segments(before, changing), in_segments(final, changing)
        self._steps = list(itertools.chain(*self._halves))
        #: Commits the updates of the plan's calls.
        self.commit = CommitUpdates(linked, 0 if recording.updates_from_external else MAX_RECORDINGS)
        #: Whether calls may have to copy results for the caller, which is possible even if the commit is recorded.
        self.copies = True
        #: The variables whose value or address in the current call differs from that in the recording.
        self._changed: set[ValueId] = set()
        #: Whether any node runs in Python in every call.
        self.always_computes = any(step.free for step in self._steps)
        self._segments = [step for step in self._steps if isinstance(step, CommandSegment)]
        segments = [segment.commands for segment in self._segments]
        contexts = {linked.contexts[var] for var in self._arrays}
        # The generator that merges launches does not refer to the plan: a reference cycle would delay the release of
        # the plan's memory.
        self._merging = LaunchMerging(_merging_course(linked, segments, contexts, self._accesses))
        #: The cache of `_concatenated`: the lists of commands, and their concatenation.
        self._concatenation: tuple[list[CommandList], CommandList] = [], CommandList()
        #: The cache of `_divided`: a command list with commands that wait for another device, and its two parts.
        self._waiting: tuple[CommandList, CommandList, CommandList] | None = None
        # The arrays in these cells are restored before each call: `commit` and `release` may replace them with copies.
        emptied = {id(cell) for cell in linked.clear_before} | {id(linked.cells[var]) for var in linked.outputs}
        cells = [(linked.cells[var], array) for var, array in self._arrays.items()]
        self._emptied = [(cell, array) for cell, array in cells if id(cell) in emptied]

    def _bound_steps(self) -> tuple[list[PlanStep], list[PlanStep]]:
        """Return the steps before the first one that overwrites an input, and the others; enqueue one-time commands."""
        recording, path = self._recording, self._recording.path
        halves: tuple[list[PlanStep], list[PlanStep]] = [], []
        uploads = TableUploads(recording, halves)
        for index, (number, node, segment) in enumerate(recording.steps):
            steps = halves[index > self._final]
            guards = [round_ for start, round_ in path.guards if start == index]
            steps += [BranchGuard(self.linked.branches, path, round_) for round_ in guards]
            if guards:
                uploads.begin_round()
            steps = halves[index >= self._final]
            bound = CommandList(map(self.buffers.bind, segment.commands))
            written = *recording.memories(node.outputs), *segment.allocated
            read = set(recording.memories(path.inputs_of(node))).difference(written)
            self._accesses.note(segment.commands, bound, read)
            if number in recording.invariant:
                bound.enqueue()
            else:
                step = self._step(number, node, segment, bound)
                uploads.precede(number, step)
                steps.append(step)
                uploads.follow(step)
        uploads.insert()
        return halves

    def _step(self, number: int, node: Node, segment: Segment, bound: CommandList) -> PlanStep:
        if number in self._recording.kept_uploads:
            bound.enqueue()
            return KeptUpload(self._recording, number, node, segment, CommandList(), self._arrays)
        if node not in self._recording.roles.value_dependent:
            return PlanStep(bound)
        return GuardedStep(self._recording, number, node, segment, bound, self._arrays)

    def load(self) -> None:
        for var, array in self._arrays.items():
            self.linked.cells[var][0] = array
        # Put copies into the cells, because host nodes such as Shape_i write into the values in their cells.
        for var, value in self._recording.fixed.items():
            self.linked.cells[var][0] = deepcopy(value)
        for step in self._steps:
            step.restore()

    def unload(self) -> None:
        """Remove the plan's arrays from the cells, so that other calls do not write to them."""
        for var in self._arrays:
            self.linked.cells[var][0] = None

    def run(self, before: Before | None = None) -> None:
        """Run the steps before the final part; raise `BranchTaken` if a condition differs from its value in the plan.

        For `before`, see `PlannedMachine`. The caller must have counted this call with `expect`.
        """
        merged = self._merging.next() if before is None and not self._merging.done else None
        if merged is not None:
            for segment, commands in zip(self._segments, merged, strict=True):
                segment.commands = commands
        self.restore_cells()
        self.rebind_io()
        given = self._recording.given
        self._changed = {var for var, recorded in given.items() if not same(self.linked.value(var), recorded)}
        steps = self._halves[0]
        for step in steps if before is None else steps[self._begin(before) :]:
            enqueue_bound(step.due(self._changed))

    def _begin(self, before: Before) -> int:
        """Call `before` with the commands up to a step that needs Python or waits; return how many steps ran."""
        lists: list[CommandList] = []
        waiting = CommandList()
        done = 0
        for step in self._halves[0]:
            if step.is_unobservable:
                enqueue_bound(step.due(self._changed))
            elif step.is_repeated(self._changed):
                first, waiting = self._divided(step.commands)
                lists.append(first)
            else:
                break
            done += 1
            if waiting:
                break
        if not before(self._concatenated(lists)):
            for commands in lists:
                enqueue_bound(commands)
        enqueue_bound(waiting)
        return done

    def _divided(self, commands: CommandList) -> tuple[CommandList, CommandList]:
        count = next((i for i, command in enumerate(commands) if isinstance(command, EnqueueAllReduce)), None)
        if count is None:
            return commands, CommandList()
        if self._waiting is None or self._waiting[0] is not commands:
            self._waiting = commands, CommandList(commands[:count]), CommandList(commands[count:])
        return self._waiting[1:]

    def _concatenated(self, lists: list[CommandList]) -> CommandList:
        """Concatenate command lists; return the cached result if the lists are the same as in the last call."""
        parts, _ = self._concatenation
        if len(parts) != len(lists) or any(a is not b for a, b in zip(parts, lists, strict=True)):
            self._concatenation = lists, CommandList(itertools.chain(*lists))
        return self._concatenation[1]

    @property
    def final_computes(self) -> bool:
        """Whether a step in the final part must run in Python in the current call; such a step may raise an error."""
        return not all(step.is_repeated(self._changed) for step in self._halves[1])

    def run_final(self) -> None:
        """Run the steps of the final part; if one of them runs in Python, the caller must hold back the commands."""
        commit_point()
        for step in self._halves[1]:
            enqueue_bound(step.due(self._changed))

    def call_ended(self) -> None:
        self._merging.call_ended()

    @property
    def enqueued(self) -> int:
        """The number of commands that a run enqueues if nothing has changed; a merged launch counts once."""
        return sum(len(step.commands) for step in self._steps)

    @property
    def is_settled(self) -> bool:
        return self._merging.done

    def expect(self, times: int) -> bool:
        """Count `times` calls that may run without Python; return whether a call must run in Python first."""
        return self._merging.expect(times)

    def rebind_io(self) -> None:
        io = self.buffers.io
        for var, memory in io.inputs.items():
            self.buffers.rebind(memory, self.linked.value(var).base_data)
        for var, memory in io.outputs.items():
            buffer = self.linked.external_outputs[var](self._recording.layouts[var])
            self.buffers.rebind(memory, self.buffers.fallback(memory) if buffer is None else buffer)

    def drop_external(self) -> None:
        """Release the buffers of the last call's inputs and outputs."""
        for memory in self.buffers.io.external:
            self.buffers.rebind(memory, None)

    def restore_cells(self) -> None:
        """Restore the plan's arrays in cells that the last call may have changed."""
        for cell, array in self._emptied:
            cell[0] = array

    @contextmanager
    def restored_cells(self) -> Iterator[None]:
        """Call `restore_cells`; after the `with` block, store the previous values again."""
        present = [(cell, cell[0]) for cell, _ in self._emptied]
        self.restore_cells()
        try:
            yield
        finally:
            for cell, value in present:
                cell[0] = value

    def unconditional_commands(self) -> CommandList | None:
        """Return all commands of a call with the same inputs as the last call; None if the call would need Python."""
        lists = [*(step.repeated(self._changed) for step in self._steps), self.commit.commands()]
        repeated = [commands for commands in lists if commands is not None]
        return CommandList(itertools.chain(*repeated)) if len(repeated) == len(lists) else None

    def release(self, borrowed: frozenset[int]) -> bool:
        """Copy results that are not `borrowed` out of the plan's arrays; return whether later calls may need copies."""
        copies = False
        for index, var in enumerate(self.linked.outputs):
            cell = self.linked.cells[var]
            if index in borrowed or not isinstance(cell[0], Array):
                continue
            copies = copies or var in self.buffers.io.outputs  # the output's buffer may differ in the next call
            if self.buffers.owns(cell[0]):
                cell[0] = copy(cell[0])
                copies = True
        return copies


def _merging_course(
    linked: LinkedFunction, segments: Segments, contexts: Collection[Context], accesses: Accesses
) -> Course:
    """Merge launches into persistent launches if the device supports them, else into sequences."""
    merge, persist = linked.merge_launches, linked.options().persistent_launches
    when = "always" if linked.merges_at_once and persist == "auto" else persist
    if merge == "never":
        return None

    def are_decided() -> bool:
        return all(residencies.is_decided(context, when) for context in contexts)

    if not are_decided():
        # Parse the kernel bodies now, so that no later call waits for that.
        for command in itertools.chain(*segments):
            if isinstance(command, EnqueueKernel):
                body_of(command)
        yield Pause(is_ready=are_decided)
    chosen = {context.queue.int_ptr: residencies.residency(context, persist) for context in contexts}
    persisting = {handle: resident for handle, resident in chosen.items() if resident is not None}
    if persisting:
        return (yield from persistent.persistent_course(segments, persisting, accesses, when))
    return (yield from sequential_course(segments, merge))


def plan_liveness(recording: Recording) -> Liveness:
    """Return the liveness of a recording's memory blocks; a block is live throughout every node that uses it."""
    memories = recording.memories
    steps = [
        CommandGroup(segment.commands, memories((*recording.path.inputs_of(node), *node.outputs)))
        for _, node, segment in recording.steps
    ]
    inputs = set(recording.io.inputs.values())
    live = liveness(steps, memories(recording.linked.outputs), inputs, recording.kept_memories)
    # Kernels that a foreign op launches may ignore offsets, so each array of such an op gets a buffer of its own.
    foreign = [node for _, node in recording.path.steps if node.is_foreign]
    alone = {memory for node in foreign for memory in memories((*node.inputs, *node.outputs))}
    return replace(live, own_buffer=frozenset({*live.own_buffer, *alone}))


def provided_liveness(recording: Recording) -> Liveness:
    """Return the liveness of the memory blocks that a plan provides, excluding next values computed in place."""
    live = plan_liveness(recording)
    places = find_donation(recording, live).places
    return replace(live, ranges={memory: span for memory, span in live.ranges.items() if memory not in places})


class Donation(NamedTuple):
    """Next values that are computed in the buffers of the current values."""

    #: Maps a next value's memory block to the place where the value is computed: a buffer and an offset in bytes.
    places: Mapping[Memory, tuple[cl.Buffer, int]]
    #: Index of the final part's first step; the number of steps if there is no final part.
    final: int


def find_donation(recording: Recording, live: Liveness) -> Donation:
    """Find the next values in a recorded call that can be computed in the buffers of the current values.

    If several variables share a buffer, either all of their next values are computed in it or none are, since a commit
    that copies into a buffer treats everything else in the buffer as overwritten.
    """
    by_buffer: dict[Memory, list[tuple[ValueId, ValueId]]] = {}
    for var, following in recording.linked.updates.items():
        present = recording.layouts.get(var)
        if present is not None and present.memory is not None and present.memory.buffer is not None:
            by_buffer.setdefault(present.memory, []).append((var, following))
    places: dict[Memory, tuple[cl.Buffer, int]] = {}
    final = recording.path.final
    if not by_buffer:
        return Donation(places, final)
    values = _Values(recording, live)
    for memory, members in by_buffer.items():
        late = [pair for pair in members if not values.may_be_early(*pair)]
        if values.may_be_overwritten(memory) and all(values.is_late(*pair) for pair in late):
            places.update(values.place(*pair) for pair in members)
            final = values.final if late else final
    return Donation(places, final)


class _Values:
    """The current and next values in a recorded call, and the steps that use them."""

    def __init__(self, recording: Recording, live: Liveness) -> None:
        self._layouts = layouts = recording.layouts
        self._live = live
        self._scratch = recording.linked.scratch
        self._nodes = [node for _, node, _ in recording.steps]
        path, outputs = recording.path, recording.linked.outputs
        behind = [index + 1 for index, node in enumerate(self._nodes) if node in recording.roles.value_dependent]
        #: Index of the first step that follows every step that may run in Python and every guard that may fail.
        self.final = min(path.final, max([0, *behind, *(index for index, _ in path.guards)]))
        #: For each memory block, the number of outputs in it, plus one if the block is kept or external.
        self._users = Counter([*recording.memories(outputs), *recording.io.external, *recording.kept_memories])
        given = {layout.memory for layout in layouts.values() if layout.memory is not None}
        #: The number of memory blocks in each root buffer, by the buffer's handle; users' arrays may be in sub-buffers.
        self._parts = Counter(root_of(memory.buffer)[0] for memory in given if memory.buffer is not None)
        #: The values that a node or the caller reads.
        self._read = {*outputs, *(var for node in self._nodes for var in path.inputs_of(node))}
        #: Maps each memory block to the indices of the first and the last step that use it.
        self._spans: dict[Memory, tuple[int, int]] = {}
        for index, (_, node, segment) in enumerate(recording.steps):
            operands = (memory for command in segment.commands for _, memory in command.operands())
            for memory in (*operands, *recording.memories((*path.inputs_of(node), *node.outputs))):
                self._spans[memory] = self._spans.get(memory, (index,))[0], index

    def may_be_overwritten(self, memory: Memory) -> bool:
        """Return whether a memory block holds no result, is not kept by the plan, and has a buffer of its own."""
        assert memory.buffer is not None
        return not self._users[memory] and self._parts[root_of(memory.buffer)[0]] == 1

    def place(self, var: ValueId, following: ValueId) -> tuple[Memory, tuple[cl.Buffer, int]]:
        """Return a next value's memory block, and the buffer and offset of the current value."""
        buffer = self._memory(var).buffer
        assert buffer is not None
        return self._memory(following), (buffer, self._layouts[var].offset)

    def _memory(self, var: ValueId) -> Memory:
        memory = self._layouts[var].memory
        assert memory is not None, var
        return memory

    def may_be_early(self, var: ValueId, following: ValueId) -> bool:
        """Return whether a next value may be written at any time during a call."""
        return var in self._scratch and var not in self._read and self._fits(var, following)

    def is_late(self, var: ValueId, following: ValueId) -> bool:
        """Return whether a next value is written only in the final part, after all reads of the current value."""
        if not self._fits(var, following):
            return False
        unused = -1, -1
        first, _ = self._spans.get(self._memory(following), unused)
        _, last_read = self._spans.get(self._memory(var), unused)
        if first < self.final or last_read > first:
            return False
        return last_read < first or var in self._nodes[first].overwritable.get(following, ())

    def _fits(self, var: ValueId, following: ValueId) -> bool:
        """Return whether a next value fills memory that the plan provides, and is the only value there after a call."""
        old, new = self._layouts[var], self._layouts.get(following)
        if new is None or new.memory is None:
            return False
        return (
            new.is_whole
            and new.memory in self._live.ranges
            and (new.memory not in self._live.own_buffer or old.offset == 0)
            and self._users[new.memory] == 1
            and new.memory.context == self._memory(var).context
            and (old.shape, old.dtype) == (new.shape, new.dtype)
            and lies_in_order(old.shape, old.strides, old.dtype.itemsize)
        )

"""Liveness of a recorded call's values, and buffer donation from current values to next values.

A call updates a variable completely or not at all, so a next value is usually copied at the very end. The current
value's buffer is *donated* to the next value if that is written after all reads of the current value, in the *final*
part of the plan, in which nothing raises. The next value of a *scratch* variable, whose current value is never read,
may be written at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from optdb.device.plans.linked import ValueId
from optdb.device.plans.recording import Recording
from optdb.runtime.arrays import lies_in_order, root_of
from optdb.runtime.buffer_assignment import CommandGroup, Liveness, liveness
from optdb.runtime.commands import Memory
from optdb.runtime.library import cl


def plan_liveness(recording: Recording) -> Liveness:
    """Return the liveness of a recording's memory blocks; a block is live throughout each node that uses it."""
    memories = recording.memories
    steps = [
        CommandGroup(segment.commands, memories((*recording.path.inputs_of(node), *node.outputs)))
        for _, node, segment in recording.steps
    ]
    inputs = set(recording.io.inputs.values())
    live = liveness(steps, memories(recording.linked.outputs), inputs, recording.kept_memories)
    # Kernels of foreign ops may ignore offsets, so an array from `empty` starts at offset 0 of its buffer.
    foreign = [node for _, node in recording.path.steps if node.is_foreign]
    alone = {memory for node in foreign for memory in memories((*node.inputs, *node.outputs))}
    return replace(live, own_buffer=frozenset({*live.own_buffer, *alone}))


def provided_liveness(recording: Recording) -> Liveness:
    """Return the liveness of the memory blocks that a plan provides, excluding next values computed in place."""
    live = plan_liveness(recording)
    places = find_donation(recording, live).places
    return replace(live, ranges={memory: span for memory, span in live.ranges.items() if memory not in places})


class Donation(NamedTuple):
    """The next values that are computed in the current values' buffers."""

    #: Maps a next value's memory block to a buffer and an offset in bytes.
    places: Mapping[Memory, tuple[cl.Buffer, int]]
    #: Index of the final part's first step; the number of steps if there is no final part.
    final: int


def find_donation(recording: Recording, live: Liveness) -> Donation:
    """Find the next values that can be computed in the current values' buffers.

    If several variables share a buffer, all or none of their next values are computed there: a commit that copies into
    a buffer treats everything else in it as overwritten.
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
        #: For each memory block, the number of its outputs, plus one if the block is kept or external.
        self._users = Counter([*recording.memories(outputs), *recording.io.external, *recording.kept_memories])
        given = {layout.memory for layout in layouts.values() if layout.memory is not None}
        #: The number of memory blocks in each buffer, by handle; users' arrays may be in sub-buffers.
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
        """Return whether memory holds no result, is not kept by the plan, and shares its buffer with no other array."""
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
        """Return whether a next value is written only in the final part and after all reads of the current value."""
        if not self._fits(var, following):
            return False
        unused = -1, -1
        first, _ = self._spans.get(self._memory(following), unused)
        _, last_read = self._spans.get(self._memory(var), unused)
        if first < self.final or last_read > first:
            return False
        return last_read < first or var in self._nodes[first].overwritable.get(following, ())

    def _fits(self, var: ValueId, following: ValueId) -> bool:
        """Return whether a next value fills memory from the plan and is the only value there after a call."""
        old, new = self._layouts[var], self._layouts.get(following)
        if new is None or new.memory is None:
            return False
        return (
            new.is_whole
            and new.memory in self._live.ranges
            and new.memory not in self._live.own_buffer
            and self._users[new.memory] == 1
            and new.memory.context == self._memory(var).context
            and (old.shape, old.dtype) == (new.shape, new.dtype)
            and lies_in_order(old.shape, old.strides, old.dtype.itemsize)
        )

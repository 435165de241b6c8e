"""Finds next values that a plan can compute in the buffers of the current values, which saves copies.

A call updates a shared variable completely or not at all, so a next value is usually computed elsewhere and copied at
the very end. Two kinds of next values can be computed in place:

- A value that is written only in the plan's *final* part, in which nothing raises. The command that writes the next
  value must follow the last command that reads the current value. It may also be that last command, if it reads each
  element before overwriting it. If no step of a plan runs in Python, the whole plan is final.
- The next value of a *scratch* variable: no function reads the value that an earlier call left there, so a call may
  write it at any time.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from optdb.device.plans.graph import Node, ValueId
from optdb.device.plans.recording import Recording
from optdb.runtime.arrays import lies_in_order, root_of
from optdb.runtime.buffer_assignment import Liveness
from optdb.runtime.commands import Memory
from optdb.runtime.library import cl

__all__ = ["Donation", "find_donation"]


class Donation(NamedTuple):
    """Next values that are computed in the buffers of the current values."""

    #: Maps a next value's memory block to the place where the value is computed: a buffer and an offset in bytes.
    places: Mapping[Memory, tuple[cl.Buffer, int]]
    #: Index of the final part's first step; the number of steps if there is no final part.
    final: int


def find_donation(recording: Recording, live: Liveness) -> Donation:
    """Find the next values in a recorded call that can be computed in the buffers of the current values.

    If several shared variables share a buffer, either all of their next values are computed there, or none:
    a commit that copies into a buffer treats everything else in it as overwritten.
    """
    by_buffer: dict[Memory, list[tuple[ValueId, ValueId]]] = {}
    for var, following in recording.linked.updates.items():
        present = recording.layouts.get(var)
        if present is not None and present.memory is not None and present.memory.buffer is not None:
            by_buffer.setdefault(present.memory, []).append((var, following))
    values = _Values(recording, live)
    places: dict[Memory, tuple[cl.Buffer, int]] = {}
    final = recording.path.final
    for memory, members in by_buffer.items():
        late = [pair for pair in members if not values.may_be_early(*pair)]
        if values.may_be_overwritten(memory) and all(values.is_late(*pair) for pair in late):
            places.update(values.place(*pair) for pair in members)
            final = values.final if late else final
    return Donation(places, final)


class _Values:
    """The current and next values in a recorded call, and the steps that use them."""

    def __init__(self, recording: Recording, live: Liveness) -> None:
        self._recording = recording
        self._layouts = recording.layouts
        self._live = live
        self._scratch = recording.linked.scratch

    @functools.cached_property
    def final(self) -> int:
        """Index of the first step that follows every step that may run in Python and every guard that may fail."""
        return min(self._recording.path.final, _first_steady(self._recording))

    @functools.cached_property
    def _users(self) -> Counter[Memory]:
        return _users(self._recording)

    @functools.cached_property
    def _parts(self) -> Counter[int]:
        """The number of memory blocks in each buffer, by the buffer's handle; arrays of users may be in sub-buffers."""
        given = {layout.memory for layout in self._layouts.values() if layout.memory is not None}
        return Counter(root_of(memory.buffer)[0] for memory in given if memory.buffer is not None)

    @functools.cached_property
    def _read(self) -> set[ValueId]:
        """The values that a node or the caller reads."""
        path = self._recording.path
        return {*self._recording.linked.outputs, *(var for _, node in path.steps for var in path.inputs_of(node))}

    @functools.cached_property
    def _nodes(self) -> list[Node]:
        return [node for _, node, _ in self._recording.steps]

    @functools.cached_property
    def _spans(self) -> dict[Memory, tuple[int, int]]:
        """Maps each memory block to the indices of the first and the last step that use it."""
        spans: dict[Memory, tuple[int, int]] = {}
        for index, (_, node, segment) in enumerate(self._recording.steps):
            operands = (memory for command in segment.commands for _, memory in command.operands())
            for memory in (
                *operands,
                *self._recording.memories((*self._recording.path.inputs_of(node), *node.outputs)),
            ):
                spans[memory] = spans.get(memory, (index,))[0], index
        return spans

    def may_be_overwritten(self, memory: Memory) -> bool:
        """Return whether memory holds no result, is not kept by the plan, and shares its buffer with no array."""
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
            and new.memory not in self._live.own_buffer
            and self._users[new.memory] == 1
            and new.memory.context == self._memory(var).context
            and (old.shape, old.dtype) == (new.shape, new.dtype)
            and lies_in_order(old.shape, old.strides, old.dtype.itemsize)
        )


def _first_steady(recording: Recording) -> int:
    """Return the index of the first step that follows every step that may run in Python and every condition."""
    computing = recording.roles.value_dependent
    behind = [index + 1 for index, (_, node, _) in enumerate(recording.steps) if node in computing]
    return max([0, *behind, *(index for index, _ in recording.path.guards)])


def _users(recording: Recording) -> Counter[Memory]:
    """For each memory block, count its outputs, and one more if the block is kept or external."""
    kept = recording.invariant | recording.kept_uploads
    return Counter(
        [
            *recording.memories(recording.linked.outputs),
            *recording.io.external,
            *(memory for number, _, segment in recording.steps if number in kept for memory in segment.allocated),
        ]
    )

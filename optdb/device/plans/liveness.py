"""Liveness of the values in a recorded call."""

from __future__ import annotations

from dataclasses import replace

from optdb.device.plans.donation import find_donation
from optdb.device.plans.recording import Recording
from optdb.runtime.buffer_assignment import CommandGroup, Liveness, liveness


def provided_liveness(recording: Recording) -> Liveness:
    """Return the liveness of the memory blocks that a plan provides, excluding next values computed in place."""
    live = plan_liveness(recording)
    places = find_donation(recording, live).places
    return replace(live, ranges={memory: span for memory, span in live.ranges.items() if memory not in places})


def plan_liveness(recording: Recording) -> Liveness:
    """Return the liveness of a recording's memory blocks; a block is live throughout every node that uses it."""
    memories = recording.memories
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
    # Kernels that a foreign op launches may ignore offsets, so an array from `empty` starts at offset 0 of its buffer.
    foreign = [node for _, node in recording.path.steps if node.is_foreign]
    alone = {memory for node in foreign for memory in memories((*node.inputs, *node.outputs))}
    return replace(live, own_buffer=frozenset({*live.own_buffer, *alone}))

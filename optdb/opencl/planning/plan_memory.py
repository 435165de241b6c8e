"""The memory of a recorded call: how long the values of its nodes live, and how many bytes that takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

from optdb.host.api.graph import Variable
from optdb.host.theano.functions.call_memory import CallMemory
from optdb.opencl.planning.donation import find_donation
from optdb.opencl.planning.recording import Recording
from optdb.runtime.buffer_assignment import CommandGroup, Liveness, liveness
from optdb.runtime.commands import Memory
from optdb.runtime.recording import ArrayLayout


def recording_memory(recording: Recording) -> CallMemory:
    """Return the memory of a recorded call on its device: liveness over nodes, and the plan's buffer assignment."""
    live = provided_liveness(recording)
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


def provided_liveness(recording: Recording) -> Liveness:
    """Return the liveness of the memories that a plan provides: not of next values that it computes in place."""
    live = plan_liveness(recording)
    places = find_donation(recording, live).places
    return replace(live, ranges={memory: span for memory, span in live.ranges.items() if memory not in places})


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
    return replace(live, own_buffer=frozenset({*live.own_buffer, *alone}))

"""How the inputs and outputs of a recorded call are bound: copied, or as external memory that is rebound in each call.

On a device that shares the host's memory, arguments are used in place, and results are computed in the caller's memory.
Their buffers differ from call to call; the plan's other buffers stay the same. :func:`bind_io` decides once, after the
recorded call, and returns an immutable table.
"""

from __future__ import annotations

from collections import Counter

from optdb.host.api.graph import Variable
from optdb.opencl.planning.merging import LAUNCH_OVERHEAD_S, may_be_merged
from optdb.opencl.planning.recording import Recording
from optdb.runtime.buffer_assignment import IOBinding
from optdb.runtime.commands import Memory
from optdb.runtime.host_buffers import pays_zero_copy
from optdb.runtime.recording import ArrayLayout

__all__ = ["advances_from_external", "bind_io", "copied_inputs", "may_be_external"]

#: The time that zero-copy saves: at least, and for each byte.
_SAVED_S, _SAVED_BY_BYTE_S = 3e-5, 5e-11


def bind_io(recording: Recording) -> IOBinding:
    """Decide how the inputs and outputs of a recorded call are bound.

    A command with external memory cannot be merged (``merging``). Where that costs more than a copy, the value is
    copied. The buffers of external inputs are dropped from the recording, since they are the caller's.

    Raises
    ------
    ValueError
        If inputs that may be external share a buffer: the function's caller has to separate them.
    """
    merged = _merged(recording)
    inputs: dict[Variable, Memory] = {}
    for var in recording.linked.rebindable_inputs:
        memory = recording.layouts[var].memory
        if memory is None or not pays_zero_copy(memory.nbytes) or not _pays(memory, merged):
            continue
        if memory in inputs.values():
            raise ValueError(f"{var} is in the buffer of another input, and was to be in one of its own")
        memory.buffer = None
        inputs[var] = memory
    taken = {recording.layouts[var].memory for var in recording.linked.updates.values() if var in recording.layouts}
    taken.update(inputs.values())
    outputs: dict[Variable, Memory] = {}
    for var in recording.linked.external_outputs:
        layout = recording.layouts.get(var)
        if layout is None or not may_be_external(layout) or layout.memory in taken or not _pays(layout.memory, merged):
            continue
        outputs[var] = layout.memory
        taken.add(layout.memory)
    return IOBinding(inputs, outputs)


def copied_inputs(recording: Recording) -> frozenset[Variable]:
    """Return the inputs that may be external and are large enough, but are cheaper to copy."""
    candidates = recording.linked.rebindable_inputs - recording.io.inputs.keys()
    memories = {var: recording.layouts[var].memory for var in candidates}
    return frozenset(var for var, memory in memories.items() if memory is not None and pays_zero_copy(memory.nbytes))


def advances_from_external(recording: Recording) -> bool:
    """Tell whether a next value lies in an external input, so that each call copies another buffer."""
    external = set(recording.io.inputs.values())
    layouts = recording.layouts
    return any(var in layouts and layouts[var].memory in external for var in recording.linked.updates.values())


def may_be_external(layout: ArrayLayout) -> bool:
    """Tell whether a value is large, and fills a memory that the function has allocated."""
    memory = layout.memory
    return memory is not None and memory.buffer is None and layout.is_whole and pays_zero_copy(memory.nbytes)


def _merged(recording: Recording) -> Counter[Memory]:
    """Count the commands that could be merged, for each memory that they use."""
    commands = [command for segment in recording.segments for command in segment.commands if may_be_merged(command)]
    return Counter(memory for command in commands for memory in {memory for _, memory in command.operands()})


def _pays(memory: Memory, merged: Counter[Memory]) -> bool:
    """Tell whether zero-copy of a memory saves more time than merging its commands would."""
    return merged[memory] * LAUNCH_OVERHEAD_S < _SAVED_S + memory.nbytes * _SAVED_BY_BYTE_S

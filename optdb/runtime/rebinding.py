"""Decides whether a recorded call's inputs and outputs are copied, or use external memory that is rebound in each call.

On a device that shares the host's memory, arguments are used in place, and results are computed in the caller's memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any

from optdb.runtime.buffer_assignment import IOBinding
from optdb.runtime.commands import Command, Memory
from optdb.runtime.device_profiles import profile_of
from optdb.runtime.host_buffers import pays_zero_copy
from optdb.runtime.recording import ArrayLayout

__all__ = ["bind_io", "may_be_external"]

#: The time that zero-copy saves: a constant in seconds, and seconds per byte.
_SAVED_S, _SAVED_BY_BYTE_S = 3e-5, 5e-11


def bind_io(
    inputs: Mapping[Any, Memory | None],
    outputs: Mapping[Any, ArrayLayout],
    next_values: Collection[Memory | None],
    mergeable: Iterable[Command],
) -> IOBinding:
    """Decide how the inputs and outputs of a recorded call are bound.

    A command with an external operand cannot be merged (``optdb.device.launches``). If that costs more time than a
    copy, the value is copied. The buffers of external inputs are dropped from the recording, since they belong to the
    caller.

    Parameters
    ----------
    inputs : mapping
        Maps each input that may be external to its `Memory`.
    outputs : mapping
        Maps each output that may be external to its layout.
    next_values : collection of Memory
        Each `Memory` that holds the next value of a shared variable; outputs in it are not external.
    mergeable : iterable of Command
        The recorded commands that can be merged if they are small.

    Raises
    ------
    ValueError
        If inputs that may be external share a buffer; the function's caller must separate them.
    """
    merged = Counter(memory for command in mergeable for memory in {memory for _, memory in command.operands()})
    external_inputs: dict[Hashable, Memory] = {}
    for var, memory in inputs.items():
        if memory is None or not pays_zero_copy(memory.nbytes) or not _pays(memory, merged):
            continue
        if memory in external_inputs.values():
            raise ValueError(f"{var} shares the buffer of another input, but needs one of its own")
        memory.buffer = None
        external_inputs[var] = memory
    taken = {*next_values, *external_inputs.values()}
    external_outputs: dict[Hashable, Memory] = {}
    for var, layout in outputs.items():
        memory = layout.memory
        if memory is not None and may_be_external(layout) and memory not in taken and _pays(memory, merged):
            external_outputs[var] = memory
            taken.add(memory)
    return IOBinding(external_inputs, external_outputs)


def may_be_external(layout: ArrayLayout) -> bool:
    """Tell whether a value is large and fills a whole `Memory` that the function has allocated."""
    memory = layout.memory
    return memory is not None and memory.buffer is None and layout.is_whole and pays_zero_copy(memory.nbytes)


def _pays(memory: Memory, merged: Counter[Memory]) -> bool:
    """Tell whether zero-copy for a `Memory` saves more time than merging the commands that use it."""
    launch_s = profile_of(memory.context.devices[0]).quirks.launch_s
    return merged[memory] * launch_s < _SAVED_S + memory.nbytes * _SAVED_BY_BYTE_S

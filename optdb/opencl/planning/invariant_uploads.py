"""What a function brings from the host at each call, though it is always the same: it need not be brought again.

A graph takes many a number to the device that the host has computed of shapes alone, such as the length of an axis by
which a mean is divided. Where nobody overwrites it, it can stay there. The same goes for what the device computes of
constants and shapes alone, such as the zeros that the gradient of a branch that is not taken is.
"""

from __future__ import annotations

from optdb.host.destroy import destroyed_slots, viewed_slots
from optdb.host.graph import Constant, Variable
from optdb.opencl.planning.recording import LinkedFunction, Recording
from optdb.opencl.planning.roles import Roles, on_device
from optdb.runtime.command_list import EnqueueUpload

__all__ = ["invariant_nodes", "invariant_uploads"]

#: So many bytes may lie there for good: what is larger shares its memory with others.
_LARGEST = 4096
#: The same for what the device computes.
_LARGEST_COMPUTED_BYTES = 1 << 18


def invariant_uploads(linked: LinkedFunction, recording: Recording, roles: Roles) -> dict[int, EnqueueUpload]:
    """Find nodes of which all that they do is to bring a small array to the device that nobody changes.

    Parameters
    ----------
    linked : LinkedFunction
        The function.
    recording : Recording
        What it did.
    roles : Roles
        Which nodes see what may change.

    Returns
    -------
    dict
        The number of a node to its only command.
    """
    found: dict[int, EnqueueUpload] = {}
    overwritten = _overwritten(linked)
    own_buffer = set().union(*(segment.commands.needing_own_buffer() for segment in recording.segments))
    for (number, node), segment in zip(recording.path.steps, recording.segments, strict=True):
        if node in roles.value_dependent or len(segment.commands) != 1 or not overwritten.isdisjoint(node.outputs):
            continue
        (command,) = segment.commands
        whole = isinstance(command, EnqueueUpload) and command.value.nbytes == command.target.nbytes <= _LARGEST
        if whole and command.target in segment.allocated and command.target not in own_buffer:
            found[number] = command
    return found


def invariant_nodes(linked: LinkedFunction, recording: Recording) -> set[int]:
    """Find nodes that compute the same small arrays of constants at each call, which nobody changes.

    Parameters
    ----------
    linked : LinkedFunction
        The function.
    recording : Recording
        What it did.

    Returns
    -------
    set of int
        The numbers of the nodes: to do their commands once is enough, if their memory is not shared.
    """
    found: set[int] = set()
    known: set[Variable] = set()
    overwritten = _overwritten(linked)
    watched = recording.path.roles.value_dependent
    for (number, node), segment in zip(recording.path.steps, recording.segments, strict=True):
        here = [var for var in recording.path.inputs_of(node) if on_device(var)]
        if not all(isinstance(var, Constant) or var in known for var in here):
            continue
        if node in watched or segment.unsupported_reason is not None or not all(map(on_device, node.outputs)):
            continue
        small = segment.allocated and sum(memory.nbytes for memory in segment.allocated) <= _LARGEST_COMPUTED_BYTES
        uploads = any(isinstance(command, EnqueueUpload) for command in segment.commands)
        if segment.commands and small and not uploads and overwritten.isdisjoint(node.outputs):
            found.add(number)
            known.update(node.outputs)
    return found


def _overwritten(linked: LinkedFunction) -> set[Variable]:
    """Return the variables in whose memory something else may be written."""
    # The next value of an input may be put in its place, and results are the caller's.
    found = {*linked.updates.values(), *linked.outputs}
    for node in reversed(linked.nodes):
        found.update(node.inputs[slot] for slot in destroyed_slots(node))
        found.update(node.inputs[slot] for out, slot in viewed_slots(node) if out in found)
    return found

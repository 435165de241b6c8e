"""What a function brings from the host at each call, though it is always the same: it need not be brought again.

A graph takes many a number to the device that the host has computed of shapes alone, such as the length of an axis by
which a mean is divided. Where nobody overwrites it, it can stay there. The same goes for what the device computes of
constants and shapes alone, such as the zeros that the gradient of a branch that is not taken is.
"""

from __future__ import annotations

from optdb.host.destroy import destroyed_slots, viewed_slots
from optdb.host.graph import Constant, Variable
from optdb.opencl.planning.recording import Recording, Wiring
from optdb.opencl.planning.roles import Roles, on_device
from optdb.runtime.recording import Upload

__all__ = ["invariant", "settled"]

#: So many bytes may lie there for good: what is larger shares its memory with others.
_LARGEST = 4096
#: The same for what the device computes.
_LARGEST_COMPUTED_BYTES = 1 << 18


def settled(wiring: Wiring, recording: Recording, roles: Roles) -> dict[int, Upload]:
    """Find nodes of which all that they do is to bring a small array to the device that nobody changes.

    Parameters
    ----------
    wiring : Wiring
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
    found: dict[int, Upload] = {}
    overwritten = _overwritten(wiring)
    for (number, node), part in zip(recording.path.steps, recording.parts, strict=True):
        if node in roles.watched or len(part.commands) != 1 or not overwritten.isdisjoint(node.outputs):
            continue
        (command,) = part.commands
        whole = isinstance(command, Upload) and command.value.nbytes == command.target.nbytes <= _LARGEST
        if whole and command.target in part.made and not command.target.bare:
            found[number] = command
    return found


def invariant(wiring: Wiring, recording: Recording) -> set[int]:
    """Find nodes that compute the same small arrays of constants at each call, which nobody changes.

    Parameters
    ----------
    wiring : Wiring
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
    overwritten = _overwritten(wiring)
    watched = recording.path.roles.watched
    for (number, node), part in zip(recording.path.steps, recording.parts, strict=True):
        here = [var for var in recording.path.inputs_of(node) if on_device(var)]
        if not all(isinstance(var, Constant) or var in known for var in here):
            continue
        if node in watched or part.trouble is not None or not all(map(on_device, node.outputs)):
            continue
        small = part.made and sum(memory.nbytes for memory in part.made) <= _LARGEST_COMPUTED_BYTES
        uploads = any(isinstance(command, Upload) for command in part.commands)
        if part.commands and small and not uploads and overwritten.isdisjoint(node.outputs):
            found.add(number)
            known.update(node.outputs)
    return found


def _overwritten(wiring: Wiring) -> set[Variable]:
    """Return the variables in whose memory something else may be written."""
    # The next value of an input may be put in its place, and results are the caller's.
    found = {*wiring.updates.values(), *wiring.outputs}
    for node in reversed(wiring.nodes):
        found.update(node.inputs[slot] for slot in destroyed_slots(node))
        found.update(node.inputs[slot] for out, slot in viewed_slots(node) if out in found)
    return found

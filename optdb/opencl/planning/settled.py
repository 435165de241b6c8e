"""What a function brings from the host at each call, though it is always the same: it need not be brought again.

A graph takes many a number to the device that the host has computed of shapes alone, such as the length of an axis by
which a mean is divided. Where nobody overwrites it, it can stay there.
"""

from __future__ import annotations

from optdb.host.destroy import destroyed_slots, viewed_slots
from optdb.host.graph import Variable
from optdb.opencl.planning.recording import Recording, Wiring
from optdb.opencl.planning.roles import Roles
from optdb.runtime.recording import Upload

__all__ = ["settled"]

#: So many bytes may lie there for good: what is larger shares its memory with others.
_LARGEST = 4096


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


def _overwritten(wiring: Wiring) -> set[Variable]:
    """Return the variables in whose memory something else may be written."""
    # The next value of an input may be put in its place, and results are the caller's.
    found = {*wiring.updates.values(), *wiring.outputs}
    for node in reversed(wiring.nodes):
        found.update(node.inputs[slot] for slot in destroyed_slots(node))
        found.update(node.inputs[slot] for out, slot in viewed_slots(node) if out in found)
    return found

"""Which values of a recording move: inputs that are elsewhere at each call, and outputs that have a place already.

On a device that shares the host's memory an argument is used where it lies, and a result is computed where the caller
finds it. The buffers of these are others at each call; all else of a plan stays where it is. The recording's memory of
such a value is marked, and a plan's `Room` tells what uses it when it has moved.
"""

from __future__ import annotations

from collections import Counter

from optdb.opencl.planning.merging import may_be_merged
from optdb.opencl.planning.probing import OF_A_LAUNCH
from optdb.opencl.planning.recording import Recording, Wiring
from optdb.runtime.lending import is_worth_it
from optdb.runtime.recording import Layout, Memory

__all__ = ["advances_from_moving", "let_move", "may_land"]

#: What is spared by not copying, in seconds: at least, and for each byte.
_SPARED, _SPARED_BY_BYTE = 3e-5, 5e-11


def let_move(wiring: Wiring, recording: Recording) -> bool:
    """Mark the memory of what may move, behind the call that was recorded.

    A command whose memory moves cannot be merged with others (``merging``). Where that costs more than a copy, an input
    is not to move from now on, and an output does not.

    Parameters
    ----------
    wiring : Wiring
        The function, which says what may move.
    recording : Recording
        What it did; gets to know what moves.

    Returns
    -------
    bool
        False if the recording is of no use, since an input that moved is not to move from now on.

    Raises
    ------
    ValueError
        If inputs that may move are not in buffers of their own: the function's caller has to see to it.
    """
    merged = _merged(recording)
    movable = wiring.movable
    for var in movable:
        memory = recording.layouts[var].memory
        if memory is None or not is_worth_it(memory.nbytes):
            continue
        if not _pays(memory, merged):
            wiring.movable -= {var}
            continue
        if memory.moves:
            raise ValueError(f"{var} is in the buffer of another input, and was to be in one of its own")
        memory.moves = True
        memory.buffer = None  # which may be the caller's own memory, and is not to be kept alive from here
        recording.moving[var] = memory
    following = {recording.layouts[var].memory for var in wiring.updates.values() if var in recording.layouts}
    for var in wiring.landing:
        layout = recording.layouts.get(var)
        if layout is None or not may_land(layout) or layout.memory in following or not _pays(layout.memory, merged):
            continue
        layout.memory.moves = layout.memory.bare = True
        recording.landing[var] = layout.memory
    return wiring.movable == movable


def advances_from_moving(wiring: Wiring, recording: Recording) -> bool:
    """Tell whether a next value is where an input is that moves, so that the copy of it is another one each time."""
    moving = set(recording.moving.values())
    return any(var in recording.layouts and recording.layouts[var].memory in moving for var in wiring.updates.values())


def may_land(layout: Layout) -> bool:
    """Tell whether a value is all of a memory that the function has made, and is large."""
    memory = layout.memory
    if memory is None or memory.buffer is not None or memory.moves:
        return False
    return layout.is_whole and is_worth_it(memory.nbytes)


def _merged(recording: Recording) -> Counter[Memory]:
    """Count the commands that could be merged, for each memory that they use."""
    commands = [command for part in recording.parts for command in part.commands if may_be_merged(command)]
    return Counter(memory for command in commands for memory in set(command.memories()))


def _pays(memory: Memory, merged: Counter[Memory]) -> bool:
    """Tell whether a memory had better move: as long as that spares more time than its commands would, if merged."""
    return merged[memory] * OF_A_LAUNCH < _SPARED + memory.nbytes * _SPARED_BY_BYTE

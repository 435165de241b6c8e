"""Next values that a plan computes where the present ones lie: those of *scratch* variables.

A call changes a shared variable at its very end, wholly or not at all: a next value is computed elsewhere, and copied.
No function reads the value of a scratch variable that an earlier call of the same function has left. So its next value
may be written there at any time of a call, and nothing is copied.
"""

from __future__ import annotations

from collections import Counter

from optdb.host.api.graph import Variable
from optdb.opencl.planning.recording import Recording
from optdb.runtime.arrays import lies_in_order
from optdb.runtime.buffer_assignment import Liveness
from optdb.runtime.commands import Memory
from optdb.runtime.library import cl
from optdb.runtime.recording import ArrayLayout

__all__ = ["donated"]


def donated(recording: Recording, live: Liveness) -> dict[Memory, tuple[cl.Buffer, int]]:
    """Return where memories of a recording are to be: the next values of scratch variables, in these.

    Several scratch variables may lie in one buffer. Either the next values of all of them are computed there, or none:
    a commit that copies into a buffer takes everything else in it for overwritten.
    """
    linked, layouts = recording.linked, recording.layouts
    pairs = [(var, following) for var, following in linked.updates.items() if var in linked.scratch]
    read = {*linked.outputs, *(var for _, node in recording.path.steps for var in recording.path.inputs_of(node))}
    by_buffer: dict[Memory, list[tuple[Variable, Variable]]] = {}
    for var, following in pairs:
        present = layouts.get(var)
        if present is not None and present.memory is not None:
            by_buffer.setdefault(present.memory, []).append((var, following))
    users = _users(recording)
    found: dict[Memory, tuple[cl.Buffer, int]] = {}
    for memory, members in by_buffer.items():
        fit = all(
            var not in read and _fits(layouts[var], layouts.get(following), live, users) for var, following in members
        )
        if fit and memory.buffer is not None and not users[memory]:
            found.update((layouts[next_].memory, (memory.buffer, layouts[var].offset)) for var, next_ in members)
    return found


def _fits(present: ArrayLayout, following: ArrayLayout | None, live: Liveness, users: Counter[Memory]) -> bool:
    """Tell whether a next value fills a memory that the plan provides, and nothing else is there after a call."""
    return (
        following is not None
        and following.is_whole
        and following.memory in live.ranges
        and following.memory not in live.own_buffer
        and users[following.memory] == 1
        and (present.shape, present.dtype) == (following.shape, following.dtype)
        and lies_in_order(present.shape, present.strides, present.dtype.itemsize)
    )


def _users(recording: Recording) -> Counter[Memory]:
    """Return how many outputs lie in each memory; a memory that the plan keeps or lends has one user more."""
    layouts = (recording.layouts.get(var) for var in recording.linked.outputs)
    kept = recording.invariant | recording.kept_uploads
    return Counter(
        [
            *(layout.memory for layout in layouts if layout is not None),
            *recording.io.external,
            *(memory for number, _, segment in recording.steps if number in kept for memory in segment.allocated),
        ]
    )

"""What a function does at each call, though the result is always the same: a plan does it once, and keeps the result.

A graph takes many a number to the device that the host has computed of shapes alone, such as the length of an axis by
which a mean is divided. Other values are computed on the device of constants and shapes alone, such as the zeros that
the gradient of a branch that is not taken is.
"""

from __future__ import annotations

from optdb.host.graph import Constant, Variable
from optdb.opencl.planning.aliasing import exposed_variables
from optdb.opencl.planning.recording import LinkedFunction, Recording
from optdb.opencl.planning.roles import on_device

__all__ = ["invariant_nodes"]

#: So many bytes may lie there for good: what is larger shares its memory with others.
_LARGEST_BYTES = 1 << 18


def invariant_nodes(linked: LinkedFunction, recording: Recording) -> set[int]:
    """Find nodes that give the same small arrays at each call, which nobody changes.

    Returns
    -------
    set of int
        The numbers of the nodes: to do their commands once is enough, if their memory is not shared.
    """
    found: set[int] = set()
    known: set[Variable] = set()
    exposed = exposed_variables(linked.nodes, (), linked.outputs)
    for number, node, segment in recording.steps:
        inputs = filter(on_device, recording.path.inputs_of(node))
        if node in recording.roles.value_dependent or not all(
            isinstance(var, Constant) or var in known for var in inputs
        ):
            continue
        small = segment.allocated and sum(memory.nbytes for memory in segment.allocated) <= _LARGEST_BYTES
        if segment.commands and small and all(on_device(var) and var not in exposed for var in node.outputs):
            found.add(number)
            known.update(node.outputs)
    return found

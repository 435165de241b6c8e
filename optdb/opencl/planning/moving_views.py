"""Views that begin elsewhere in each call, such as a batch of a data set on the device, which an index names.

All that reads such a view would have to compute in Python, as the arguments of its kernels change. So a plan copies
small ones into memory of its own: then their nodes alone compute, and what reads them is repeated.
"""

from __future__ import annotations

from collections.abc import Collection

from optdb.host.api.graph import Apply, Constant, Variable
from optdb.host.api.ops import Flatten, Rebroadcast, Reshape, SpecifyShape
from optdb.host.api.slots import viewed_slots
from optdb.opencl.aliasing import exposed_variables
from optdb.opencl.planning.linked import LinkedFunction
from optdb.opencl.planning.roles import on_device
from optdb.opencl.registry import get_context
from optdb.runtime.arrays import Array, copy

__all__ = ["copy_views", "moving_views"]

#: The most bytes that are copied, where the device shares the host's memory, and elsewhere.
MAX_SHARED_BYTES, MAX_BYTES = 1 << 20, 1 << 26
#: Values of the host say what shape their views have, not where these begin.
SHAPED = (Reshape, Flatten, SpecifyShape, Rebroadcast)


def moving_views(linked: LinkedFunction, value_dependent: Collection[Apply]) -> frozenset[Variable]:
    """Return the variables that are views whose place depends on values of the host, and that may be copies as well.

    They may not if a node overwrites them, or what they are views of, or if the caller gets them.
    """
    moving = {
        out
        for node in value_dependent
        if _sees_changing_values(node, linked, value_dependent)
        if not isinstance(node.op, SHAPED)
        for out, _ in viewed_slots(node)
        if on_device(out)
    }
    if not moving:
        return frozenset()
    return frozenset(moving - exposed_variables(linked.nodes, (), [*linked.outputs, *linked.updates.values()]))


def _sees_changing_values(node: Apply, linked: LinkedFunction, value_dependent: Collection[Apply]) -> bool:
    """Tell whether a node itself takes values of the host that may change."""
    return any(
        var in linked.inputs if var.owner is None else var.owner in value_dependent
        for var in node.inputs
        if not (on_device(var) or isinstance(var, Constant))
    )


def copy_views(node: Apply, linked: LinkedFunction, moving: Collection[Variable]) -> None:
    """Let the cells of a node's moving views have copies, if these are small and lie in order."""
    for var in node.outputs:
        value = linked.value(var)
        if var in moving and isinstance(value, Array) and value.flags.c_contiguous:
            shares = get_context(var.type.context_name).profile.shares_host_memory
            if value.nbytes <= (MAX_SHARED_BYTES if shares else MAX_BYTES):
                linked.cells[var][0] = copy(value)

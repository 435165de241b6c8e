"""Steps that a function left on the host, and that its trace does on the device after all.

On the host they would need values of the call: a number that is counted up, such as an optimizer's step, or a shared
number that is multiplied. What they give is at home on the device then, and goes no further on the host than to be
returned, kept, or brought to the device.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from optdb.host import ops
from optdb.host.graph import Apply, Variable
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.views import OpenCLDimShuffle, OpenCLReshape
from optdb.opencl.type import UnsupportedDtype, opencl_type

__all__ = ["on_the_device"]

#: The ops, and how many of their inputs are arrays; the others stay on the host.
_COUNTERPARTS: tuple[tuple[Any, Callable[[Any], Any], int | None], ...] = (
    (ops.Elemwise, lambda op: OpenCLElemwise(op.scalar_op), None),
    (ops.DimShuffle, lambda op: OpenCLDimShuffle(op.input_broadcastable, op.new_order), 1),
    (ops.Reshape, lambda op: OpenCLReshape(op.ndim), 1),
)


def on_the_device(node: Apply, context_name: Hashable) -> tuple[Apply, int] | None:
    """Return a node of the device that does what one of the host does, and how many inputs it has there.

    Parameters
    ----------
    node : Apply
        Of the host.
    context_name : str
        The device.

    Returns
    -------
    (Apply, int) or None
        The node has variables of its own for the inputs there. None if the device has nothing like it.
    """
    found = next(((make, count) for kind, make, count in _COUNTERPARTS if isinstance(node.op, kind)), None)
    if found is None:
        return None
    make, count = found
    count = len(node.inputs) if count is None else count
    try:
        arrays = [_there(var, context_name) for var in node.inputs[:count]]
        twin = make(node.op).make_node(*arrays, *node.inputs[count:])
    except (TypeError, UnsupportedDtype):
        # There is no OpenCL C for it, or the device lacks its dtype.
        return None
    same = [(out.type.dtype, out.type.broadcastable) for out in twin.outputs]
    return (twin, count) if same == [(out.type.dtype, out.type.broadcastable) for out in node.outputs] else None


def _there(var: Variable, context_name: Hashable) -> Variable:
    return opencl_type(var.type.dtype, tuple(var.type.broadcastable), context_name)()

"""Facts about Theano's nodes that decide how a function on a device runs: where a node computes, and what it sees."""

from __future__ import annotations

from optdb.host.api.control_flow import IfElse, Scan, inner_nodes
from optdb.host.api.graph import Apply, Op, PureOp, Variable
from optdb.host.api.linking import DeepCopyOp, ViewOp
from optdb.host.api.ops import (
    DimShuffle,
    Elemwise,
    Flatten,
    MakeVector,
    Rebroadcast,
    Reshape,
    ScalarFromTensor,
    Shape,
    Shape_i,
    SpecifyShape,
    Subtensor,
    TensorFromScalar,
)
from optdb.host.api.slots import destroyed_slots
from optdb.host.api.user_inplace import is_overwritten_by_user
from optdb.host.api.variables import is_host_array
from optdb.opencl.aliasing import may_lie_in
from optdb.opencl.type import OpenCLArrayType

#: Host ops of these classes run only commands that can be recorded. The device's ops say so by their attribute
#: `repeatable`.
REPEATABLE = (Scan, IfElse, DeepCopyOp, ViewOp, Rebroadcast, SpecifyShape)
#: Ops that return shapes, which the host knows.
SHAPES = (Shape, Shape_i)
#: Ops that compute values from nothing but their inputs, as no op of a user can be relied on to do, nor one that waits.
PURE = (Elemwise, DimShuffle, MakeVector, Reshape, Subtensor, ScalarFromTensor, TensorFromScalar, *SHAPES)
#: Views of these: values of the host say what shape they have, not where they begin.
SHAPED = (Reshape, Flatten, SpecifyShape, Rebroadcast)


def on_device(var: Variable) -> bool:
    """Tell whether a variable is on the device."""
    return isinstance(var.type, OpenCLArrayType)


def touches_device(node: Apply) -> bool:
    """Tell whether a node takes or gives arrays on the device."""
    return any(map(on_device, node.inputs)) or any(map(on_device, node.outputs))


def is_small(node: Apply) -> bool:
    """Tell whether a node gives numbers, or vectors of whole numbers, on the host."""
    if type(node.op).perform is Op.perform or any(map(on_device, node.inputs)):
        return False
    if not all(is_host_array(var) and var.type.ndim <= 1 for var in node.outputs):
        return False
    # Few numbers in give few numbers out, in any dtype.
    is_short = all(var.type.ndim == 0 or "int" in var.type.dtype for var in node.outputs)
    return is_short or all(map(_is_few, node.inputs))


def _is_few(var: Variable) -> bool:
    """Tell whether a variable is one number, or a vector made of numbers."""
    if not is_host_array(var):
        return False
    return all(var.type.broadcastable) or (var.owner is not None and isinstance(var.owner.op, MakeVector))


def overwrites(node: Apply) -> bool:
    """Tell whether a node overwrites what it reads, in a function with arrays on the device."""
    if not getattr(node.op, "destroy_map", None):
        return False
    return not (isinstance(node.op, Elemwise) and is_small(node)) or is_user_inplace(node)


def is_user_inplace(node: Apply) -> bool:
    """Tell whether a node overwrites the caller's array, as the user wrote it."""
    overwritten = [node.inputs[slot] for slot in destroyed_slots(node)]
    return any(map(is_overwritten_by_user, may_lie_in(*overwritten)))


def may_be_held(node: Apply) -> bool:
    """Tell whether all that a node does to the device can be held back: it reads no values there."""
    return all(map(on_device, node.outputs)) and not _reads_device(node)


def enqueues_at_end(node: Apply) -> bool:
    """Tell whether a node is of the device's own ops, which check all that may raise before they overwrite anything."""
    return getattr(node.op, "repeatable", False) and may_be_held(node)


def _reads_device(node: Apply) -> bool:
    """Tell whether a node, or one inside of a loop, may read values of the device.

    Held commands would have to run before that.
    """
    if isinstance(node.op, Scan):
        return any(map(_reads_device, inner_nodes(node.op)))
    if isinstance(node.op, SHAPES) or not touches_device(node):
        return False
    return not (all(map(on_device, node.outputs)) and is_repeatable(node.op))


def is_foreign(node: Apply) -> bool:
    """Tell whether a node's op may run commands that optdb does not see: a foreign op that touches the device."""
    return not hasattr(node.op, "repeatable") and not is_repeatable(node.op) and touches_device(node)


def is_repeatable(op: PureOp) -> bool:
    """Tell whether all commands that an op enqueues may be recorded, and enqueued again."""
    return getattr(op, "repeatable", isinstance(op, (*REPEATABLE, *SHAPES)))

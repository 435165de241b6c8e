"""Predicates on Theano's nodes that decide how a device function runs."""

from __future__ import annotations

from optdb.host.api import ops
from optdb.host.api.control_flow import IfElse, Scan, inner_nodes
from optdb.host.api.graph import Apply, Op, PureOp, Variable
from optdb.host.api.linking import DeepCopyOp, ViewOp
from optdb.host.api.slots import destroyed_slots
from optdb.host.api.user_inplace import is_overwritten_by_user
from optdb.host.api.variables import is_host_array
from optdb.opencl.aliasing import may_lie_in
from optdb.opencl.type import OpenCLArrayType

#: Host ops whose commands can all be recorded. Device ops declare in their attribute `repeatable` whether their
#: commands can be recorded.
REPEATABLE = (Scan, IfElse, DeepCopyOp, ViewOp, ops.Rebroadcast, ops.SpecifyShape)
#: Ops that return shapes, which are known on the host.
SHAPES = (ops.Shape, ops.Shape_i)
#: Pure ops, whose results depend only on their inputs; users' ops and ops that wait do not count as pure.
PURE = (
    ops.Elemwise,
    ops.DimShuffle,
    ops.MakeVector,
    ops.Reshape,
    ops.Subtensor,
    ops.ScalarFromTensor,
    ops.TensorFromScalar,
    *SHAPES,
)
#: Ops that return views whose shape, but not offset, depends on host inputs.
SHAPED = (ops.Reshape, ops.Flatten, ops.SpecifyShape, ops.Rebroadcast)


def on_device(var: Variable) -> bool:
    """Return whether a variable is on the device."""
    return isinstance(var.type, OpenCLArrayType)


def touches_device(node: Apply) -> bool:
    """Return whether a node takes or returns device arrays."""
    return any(map(on_device, node.inputs)) or any(map(on_device, node.outputs))


def is_small(node: Apply) -> bool:
    """Return whether a host node returns only scalars and integer vectors, or takes only a few numbers."""
    if type(node.op).perform is Op.perform or any(map(on_device, node.inputs)):
        return False
    if not all(is_host_array(var) and var.type.ndim <= 1 for var in node.outputs):
        return False
    # An op on a few numbers returns only a few numbers, in any dtype.
    is_short = all(var.type.ndim == 0 or "int" in var.type.dtype for var in node.outputs)
    return is_short or all(map(_is_few, node.inputs))


def _is_few(var: Variable) -> bool:
    """Return whether a variable is a single number or a vector made of scalars."""
    if not is_host_array(var):
        return False
    return all(var.type.broadcastable) or (var.owner is not None and isinstance(var.owner.op, ops.MakeVector))


def overwrites(node: Apply) -> bool:
    """Return whether a node overwrites an input, in a function with device arrays."""
    if not getattr(node.op, "destroy_map", None):
        return False
    return not (isinstance(node.op, ops.Elemwise) and is_small(node)) or is_user_inplace(node)


def is_user_inplace(node: Apply) -> bool:
    """Return whether a node overwrites an array of the caller, as the user's own graph requires."""
    overwritten = [node.inputs[slot] for slot in destroyed_slots(node)]
    return any(map(is_overwritten_by_user, may_lie_in(*overwritten)))


def may_be_held(node: Apply) -> bool:
    """Return whether all commands of a node can be held back, which requires that the node reads no device values."""
    return all(map(on_device, node.outputs)) and not _reads_device(node)


def enqueues_at_end(node: Apply) -> bool:
    """Return whether a node's op is one of optdb's device ops, which never raise after overwriting anything."""
    return getattr(node.op, "repeatable", False) and may_be_held(node)


def _reads_device(node: Apply) -> bool:
    """Return whether a node, or a node in its loop, may read device values; if so, held-back commands run first."""
    if isinstance(node.op, Scan):
        return any(map(_reads_device, inner_nodes(node.op)))
    if isinstance(node.op, SHAPES) or not touches_device(node):
        return False
    return not (all(map(on_device, node.outputs)) and is_repeatable(node.op))


def is_foreign(node: Apply) -> bool:
    """Return whether a node touches the device with a foreign op, which may enqueue commands unknown to optdb."""
    return not hasattr(node.op, "repeatable") and not is_repeatable(node.op) and touches_device(node)


def is_repeatable(op: PureOp) -> bool:
    """Return whether all commands that an op enqueues can be recorded and replayed."""
    return getattr(op, "repeatable", isinstance(op, (*REPEATABLE, *SHAPES)))

"""Which nodes of a function run the same commands in each call, as far as the graph tells.

A node is *steady* if the shapes of the function's inputs fix all host values that it sees: its commands are repeated
without a guard. It is *value-dependent* if it depends on a host value that may change, directly or through other nodes:
such nodes are guarded, each call compares their inputs. It is *always recomputed* if it moves values of the device to
the host, gives a host value that the plan does not own, or runs commands that cannot be recorded. Small work of the
host (see `is_small`) overwrites nothing.

A plan keeps a node's host results from one call to the next, and then skips the node. That is right only while no other
code can overwrite or empty them. So there is one rule: **a plan owns a value of the host only if no variable of its
alias class is seen outside of the nodes that read it** (see `aliasing`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from optdb.host.api.control_flow import IfElse, Scan, inner_nodes
from optdb.host.api.graph import Apply, Constant, Op, PureOp, Variable
from optdb.host.api.linking import DeepCopyOp, ViewOp
from optdb.host.api.ops import (
    DimShuffle,
    Elemwise,
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


@dataclass(frozen=True)
class Roles:
    """The roles of a function's nodes."""

    #: Depend on values of the host that may change; those that are always recomputed are among them.
    value_dependent: frozenset[Apply]
    #: Compute each time.
    always_recompute: frozenset[Apply]


def on_device(var: Variable) -> bool:
    """Tell whether a variable is on the device."""
    return isinstance(var.type, OpenCLArrayType)


def touches_device(node: Apply) -> bool:
    """Tell whether a node takes or gives arrays on the device."""
    return any(map(on_device, node.inputs)) or any(map(on_device, node.outputs))


def is_unseen(node: Apply) -> bool:
    """Tell whether nobody could see when a node computes: it takes and gives values of the host, and is pure."""
    return isinstance(node.op, PURE) and not touches_device(node)


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


def find_roles(
    steps: Iterable[tuple[Apply, Sequence[Variable]]],
    inputs: Collection[Variable],
    exposed: Collection[Variable],
    unrepeatable: Collection[Apply] = (),
) -> Roles:
    """Find the roles of the nodes of a path.

    Parameters
    ----------
    steps : iterable of (Apply, sequence of Variable)
        The nodes in order, each with the inputs that it uses.
    inputs, exposed : collection of Variable
        The function's inputs, and the variables whose memory is seen outside of its nodes.
    unrepeatable : collection of Apply
        Nodes that could not be recorded.
    """
    inputs = set(inputs)
    changing = {var for var in inputs if not on_device(var)}
    value_dependent: set[Apply] = set()
    always_recompute: set[Apply] = set()
    for node, used in steps:
        if node in unrepeatable or _always_recomputes(node, exposed):
            always_recompute.add(node)
        elif not any(var in changing for var in _seen(node, inputs, used)):
            continue
        value_dependent.add(node)
        changing.update(node.outputs)
    return Roles(frozenset(value_dependent), frozenset(always_recompute))


def _seen(node: Apply, given: set[Variable], inputs: Sequence[Variable]) -> list[Variable]:
    """Return the inputs to guard; not shapes of the function's inputs, which are fixed, nor conditions."""
    if isinstance(node.op, SHAPES):
        return [var for var in inputs if var not in given]
    return [var for var in inputs[isinstance(node.op, IfElse) :] if not isinstance(var, Constant)]


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
    return not (all(map(on_device, node.outputs)) and _is_repeatable(node.op))


def is_foreign(node: Apply) -> bool:
    """Tell whether a node's op may run commands that optdb does not see: a foreign op that touches the device."""
    return not hasattr(node.op, "repeatable") and not _is_repeatable(node.op) and touches_device(node)


def _is_repeatable(op: PureOp) -> bool:
    return getattr(op, "repeatable", isinstance(op, (*REPEATABLE, *SHAPES)))


def _always_recomputes(node: Apply, exposed: Collection[Variable]) -> bool:
    if any(var in exposed and not on_device(var) for var in node.outputs):
        return True
    sees_device = any(map(on_device, node.inputs))
    if sees_device and not isinstance(node.op, SHAPES) and not all(map(on_device, node.outputs)):
        return True
    return touches_device(node) and not _is_repeatable(node.op)

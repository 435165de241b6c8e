"""Reductions that compute what they fold: it is never stored."""

from __future__ import annotations

from optdb.host.graph import Apply, FunctionGraph, Variable, clients
from optdb.opencl.fusing.groups import can_fuse
from optdb.opencl.ops.reduce import OpenCLCAReduce


def of_what_is_computed(fgraph: FunctionGraph, node: Apply) -> Variable | None:
    """Return what a reduction gives, folded from what its input is computed of; None if that is wanted elsewhere."""
    op = node.op
    if type(op) is not OpenCLCAReduce or op.pre_scalar_op is not None or op.post_scalar_op is not None:
        return None  # one that is fused already, in the graph of a function that was compiled for a device, stays so
    (x,) = node.inputs
    maker = x.owner
    if maker is None or not can_fuse(maker) or len(maker.outputs) > 1 or len(clients(fgraph, x)) > 1:
        return None
    if not _has_room(maker):
        return None
    reduction = OpenCLCAReduce(op.scalar_op, op.axis, op.dtype, op.acc_dtype, maker.op.scalar_op)
    return reduction(*maker.inputs)


def _has_room(maker: Apply) -> bool:
    """Tell whether a device takes the arguments of a reduction of the same inputs."""
    kind = maker.outputs[0].type
    axes = max(kind.ndim, 2)
    taken = 8 * (5 + axes) + len(maker.inputs) * (16 + 8 * axes) + 24 + 8 * axes
    return taken <= kind.context.profile.max_parameter_bytes

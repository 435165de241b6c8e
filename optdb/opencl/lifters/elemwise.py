"""Lifters of elementwise ops and of reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host import ops as host
from optdb.host.graph import Op, Variable
from optdb.lifters.lifter import op_lifter
from optdb.opencl.device import lifters_db
from optdb.opencl.lifters.support import on_device, real_arrays, scalar_trouble, trouble
from optdb.opencl.ops.argmax import OpenCLArgmax, OpenCLMaxAndArgmax
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.reduce import OpenCLCAReduce, why_not_folded
from optdb.topo.db import register_topo


def _elemwise_trouble(
    op: Op, context_name: str | None, inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> str | None:
    return scalar_trouble(op.scalar_op, context_name, [x.type.dtype for x in inputs])


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=10)
@op_lifter([host.Elemwise], supports=_elemwise_trouble)
def lift_elemwise(op: Op, context_name: str | None, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Any:
    """Lift a scalar op on all elements of arrays."""
    return OpenCLElemwise(op.scalar_op).node_of(on_device(inputs, context_name), context_name).outputs


def _acc_dtype(op: Op, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> str:
    """Return the accumulator's dtype that the host would take."""
    (x,), (out,) = inputs, outputs
    if isinstance(op, host.CAReduceDtype):
        return op._acc_dtype(x.type.dtype)
    return out.type.dtype


def _reduction_trouble(
    op: Op, context_name: str | None, inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> str | None:
    (x,), (out,) = inputs, outputs
    acc_dtype = _acc_dtype(op, inputs, outputs)
    reason = why_not_folded(op.scalar_op, x.type.dtype, acc_dtype)
    return reason or trouble(context_name, [x.type.dtype, acc_dtype, out.type.dtype])


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=11)
@op_lifter([host.CAReduce, host.CAReduceDtype, host.Sum, host.Prod, host.All, host.Any], supports=_reduction_trouble)
def lift_reduction(op: Op, context_name: str | None, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Any:
    """Lift a scalar op folded over axes."""
    (out,) = outputs
    lifted = OpenCLCAReduce(op.scalar_op, op.axis, out.type.dtype, _acc_dtype(op, inputs, outputs))
    return lifted(*on_device(inputs, context_name))


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=12)
@op_lifter([host.MaxAndArgmax, host.Argmax], supports=real_arrays)
def lift_argmax(op: Op, context_name: str | None, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Any:
    """Lift the search for the largest elements along axes."""
    lifted = OpenCLMaxAndArgmax if isinstance(op, host.MaxAndArgmax) else OpenCLArgmax
    return lifted(list(op.axis))(*on_device(inputs, context_name), return_list=True)

"""Lifters for elementwise ops and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from optdb.host.api import ops as host
from optdb.opencl.lifting import (
    Inputs,
    lifts,
    node_like,
    on_device,
    real_arrays,
    scalar_unsupported_reason,
    unsupported_reason,
)
from optdb.opencl.ops.axes import OpenCLArgmax, OpenCLMaxAndArgmax
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.scalar_programs import folding_unsupported_reason

#: Maps the ``id`` of a scalar op to the device op; not keyed by the scalar op, since equal scalar ops may differ.
_ops: WeakValueDictionary[int, OpenCLElemwise] = WeakValueDictionary()


def _elemwise(scalar_op: Any) -> OpenCLElemwise:
    """Return the device op for a scalar op. It is always the same object, so it is fast to compare and hash."""
    op = _ops.get(id(scalar_op))
    # The op may hold another, equal scalar op because of the op cache, or the id may have been reused.
    if op is None or op.scalar_op is not scalar_op:
        op = _ops[id(scalar_op)] = OpenCLElemwise(scalar_op)
    return op


def _elemwise_unsupported_reason(
    op: host.Elemwise, context_name: str | None, inputs: Inputs, outputs: Inputs
) -> str | None:
    return scalar_unsupported_reason(op.scalar_op, context_name, [x.type.dtype for x in inputs])


@lifts([host.Elemwise], 10, _elemwise_unsupported_reason)
def lift_elemwise(op: host.Elemwise, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a scalar op that is applied to all elements of arrays."""
    return node_like(_elemwise(op.scalar_op), context_name, inputs, outputs)


_REDUCTIONS = (host.CAReduce, host.CAReduceDtype, host.Sum, host.Prod, host.ProdWithoutZeros, host.All, host.Any)


def _acc_dtype(op: host.CAReduce, inputs: Inputs, outputs: Inputs) -> str:
    """Return the accumulator dtype that the host would use."""
    (x,), (out,) = inputs, outputs
    if isinstance(op, host.CAReduceDtype):
        return op._acc_dtype(x.type.dtype)
    return out.type.dtype


def _reduction_unsupported_reason(
    op: host.CAReduce, context_name: str | None, inputs: Inputs, outputs: Inputs
) -> str | None:
    (x,), (out,) = inputs, outputs
    acc_dtype = _acc_dtype(op, inputs, outputs)
    reason = folding_unsupported_reason(op.scalar_op, x.type.dtype, acc_dtype)
    return reason or unsupported_reason(context_name, [x.type.dtype, acc_dtype, out.type.dtype])


@lifts(_REDUCTIONS, 11, _reduction_unsupported_reason)
def lift_reduction(op: host.CAReduce, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a reduction, which folds a scalar op over axes."""
    (out,) = outputs
    lifted = OpenCLCAReduce(op.scalar_op, op.axis, out.type.dtype, _acc_dtype(op, inputs, outputs))
    return node_like(lifted, context_name, inputs, outputs)


_LARGEST: Sequence[type[host.MaxAndArgmax | host.Argmax]] = [host.MaxAndArgmax, host.Argmax]


@lifts(_LARGEST, 12, real_arrays)
def lift_argmax(op: host.MaxAndArgmax | host.Argmax, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the search for the largest elements along axes."""
    lifted = OpenCLMaxAndArgmax if isinstance(op, host.MaxAndArgmax) else OpenCLArgmax
    return lifted(list(op.axis))(*[on_device(x, context_name) for x in inputs], return_list=True)

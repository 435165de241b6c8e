"""Lifters of batch normalization, while it is one op: what the host makes of it takes more ways through memory."""

from __future__ import annotations

from collections.abc import Sequence

from optdb.host import layers as host
from optdb.host.graph import Op, Variable
from optdb.opencl.lifters.support import floats_only, register_counterparts, unsupported_reason
from optdb.opencl.ops import batch_norm  # noqa: F401  counterparts
from optdb.opencl.ops.counterpart import counterpart_of

Inputs = Sequence[Variable]


def _normalization_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    ndim = inputs[0].type.ndim
    there = counterpart_of(type(op)).device_places(len(inputs))
    if min(op.axes) < 0 or max(op.axes) >= ndim:
        return f"there are no axes {op.axes} in an array of {ndim} dimensions"
    if any(x.type.ndim for i, x in enumerate(inputs) if i not in there):
        return "epsilon or the factor of the running averages is an array"
    if len({x.type.dtype for i, x in enumerate(inputs) if i in there}) > 1:
        return "its arrays are of different dtypes"
    return floats_only(op, context_name, inputs, outputs)


def _training_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    reason = _normalization_unsupported_reason(op, context_name, inputs, outputs)
    return reason or unsupported_reason(context_name, ["float64"])


register_counterparts(
    "lift_batch_norm_training",
    63,
    [host.AbstractBatchNormTrain, host.AbstractBatchNormTrainGrad],
    _training_unsupported_reason,
)
register_counterparts(
    "lift_batch_norm_inference", 64, [host.AbstractBatchNormInference], _normalization_unsupported_reason
)

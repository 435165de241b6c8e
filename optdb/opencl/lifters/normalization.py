"""Lifters of batch normalization, while it is one op: what the host makes of it takes more ways through memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host import layers as host
from optdb.host.graph import Op, Variable
from optdb.lifters.lifter import op_lifter
from optdb.opencl.device import lifters_db
from optdb.opencl.lifters.support import floats_only, on_device, unsupported_reason
from optdb.opencl.ops import batch_norm
from optdb.topo.db import register_topo

Inputs = Sequence[Variable]

#: Where arrays stand among the inputs; the others are numbers, which stay on the host.
_ARRAYS = {
    host.AbstractBatchNormTrain: (0, 1, 2, 5, 6),
    host.AbstractBatchNormTrainGrad: (0, 1, 2, 3, 4),
    host.AbstractBatchNormInference: (0, 1, 2, 3, 4),
}


def _normalization_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    ndim = inputs[0].type.ndim
    if min(op.axes) < 0 or max(op.axes) >= ndim:
        return f"there are no axes {op.axes} in an array of {ndim} dimensions"
    if any(x.type.ndim for i, x in enumerate(inputs) if i not in _ARRAYS[type(op)]):
        return "epsilon or the factor of the running averages is an array"
    if len({x.type.dtype for i, x in enumerate(inputs) if i in _ARRAYS[type(op)]}) > 1:
        return "its arrays are of different dtypes"
    return floats_only(op, context_name, inputs, outputs)


def _training_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    reason = _normalization_unsupported_reason(op, context_name, inputs, outputs)
    return reason or unsupported_reason(context_name, ["float64"])


def _moved(op: Op, context_name: str | None, inputs: Inputs) -> list[Variable]:
    return [on_device([x], context_name)[0] if i in _ARRAYS[type(op)] else x for i, x in enumerate(inputs)]


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=63)
@op_lifter([host.AbstractBatchNormTrain, host.AbstractBatchNormTrainGrad], supports=_training_unsupported_reason)
def lift_batch_norm_training(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift batch normalization for training, or its gradient."""
    forward = isinstance(op, host.AbstractBatchNormTrain)
    lifted = batch_norm.OpenCLBatchNormTrain if forward else batch_norm.OpenCLBatchNormTrainGrad
    return lifted(op.axes)(*_moved(op, context_name, inputs), return_list=True)


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=64)
@op_lifter([host.AbstractBatchNormInference], supports=_normalization_unsupported_reason)
def lift_batch_norm_inference(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift batch normalization by known means and variances."""
    return batch_norm.OpenCLBatchNormInference(op.axes)(*_moved(op, context_name, inputs))

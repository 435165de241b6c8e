"""Theano's batch normalization on the device: for training, with its gradient, and for inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from optdb.codegen.normalization import operations
from optdb.codegen.normalization.operations import BatchNormGradient, BatchNormInference, BatchNormTraining
from optdb.codegen.operation import Operation
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply
from optdb.host.theano.functions.channel_statistics import ChannelGradientSums, ChannelMoments
from optdb.opencl.lifting import Inputs, array_dtypes, floats_only, register_counterparts, unsupported_reason
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.counterpart_base import counterpart_class
from optdb.opencl.ops.shell import Shell, spec_of


class _ChannelsOp(Counterpart, Shell):
    """Base class of the ops in this module."""

    common_dtype = "upcast"
    settings = ("axes",)
    #: The host's parameter.
    axes: tuple[int, ...]

    def make_node(self, *inputs: Any) -> Apply:
        node = super().make_node(*inputs)
        x = node.inputs[0].type
        if not x.dtype.startswith("float"):
            raise TypeError(f"{self} normalizes floats, not arrays of {x.dtype}")
        if min(self.axes) < 0 or max(self.axes) >= x.ndim:
            raise ValueError(f"axes should be less than ndim (<{x.ndim}), but {self.axes} given")
        return node


class OpenCLBatchNormTrain(_ChannelsOp, host.AbstractBatchNormTrain):
    """Arrays normalized so that each channel has mean 0 and variance 1, then scaled and shifted."""

    device_inputs = (0, 1, 2, 5, 6)

    def operation(self, node: Apply) -> Operation:
        return BatchNormTraining(self.get_context(node), spec_of(node.inputs[0]), self.axes, len(node.inputs) > 5)


class OpenCLBatchNormTrainGrad(_ChannelsOp, host.AbstractBatchNormTrainGrad):
    """The gradient of batch normalization for training, from the means and deviations that training computes."""

    device_inputs = slice(0, 5)
    computed_by = BatchNormGradient


class OpenCLBatchNormInference(_ChannelsOp, host.AbstractBatchNormInference):
    """Arrays normalized with given means and variances."""

    device_inputs = slice(0, 5)
    computed_by = BatchNormInference


class OpenCLChannelMoments(_ChannelsOp, ChannelMoments):
    """Each channel's moments over a part of a batch."""

    computed_by = operations.BatchNormMoments


class OpenCLChannelGradientSums(_ChannelsOp, ChannelGradientSums):
    """The sums over a part of a batch, for each channel, from which batch normalization's gradient is computed."""

    computed_by = operations.BatchNormGradientSums


_Normalization: TypeAlias = (
    "host.AbstractBatchNormTrain | host.AbstractBatchNormTrainGrad | host.AbstractBatchNormInference "
    "| ChannelMoments | ChannelGradientSums"
)


def _normalization_unsupported_reason(
    op: _Normalization, context_name: str | None, inputs: Inputs, outputs: Inputs
) -> str | None:
    ndim = inputs[0].type.ndim
    device_slots = counterpart_class(op).device_slots(len(inputs))
    if min(op.axes) < 0 or max(op.axes) >= ndim:
        return f"there are no axes {op.axes} in an array of {ndim} dimensions"
    if any(x.type.ndim for i, x in enumerate(inputs) if i not in device_slots):
        return "epsilon or the factor of the running averages is an array"
    if len(array_dtypes(op, inputs)) > 1:
        return "its arrays are of different dtypes"
    return floats_only(op, context_name, inputs, outputs)


def _training_unsupported_reason(
    op: _Normalization, context_name: str | None, inputs: Inputs, outputs: Inputs
) -> str | None:
    reason = _normalization_unsupported_reason(op, context_name, inputs, outputs)
    return reason or unsupported_reason(context_name, ["float64"])


_TRAINING: Sequence[type[_Normalization]] = (
    host.AbstractBatchNormTrain,
    host.AbstractBatchNormTrainGrad,
    ChannelMoments,
    ChannelGradientSums,
)
register_counterparts("lift_batch_norm_training", 63, _TRAINING, _training_unsupported_reason)
_INFERENCE: Sequence[type[_Normalization]] = (host.AbstractBatchNormInference,)
register_counterparts("lift_batch_norm_inference", 64, _INFERENCE, _normalization_unsupported_reason)

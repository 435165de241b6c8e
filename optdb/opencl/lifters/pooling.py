"""Lifters of pooling, its gradients, and patches of images."""

from __future__ import annotations

from collections.abc import Sequence

from optdb.host import layers as host
from optdb.host.graph import Op, Variable
from optdb.opencl.lifters.support import register_counterparts
from optdb.opencl.ops import neighbours, pool_grads, pooling  # noqa: F401  counterparts
from optdb.opencl.ops.counterpart import counterpart_of

Inputs = Sequence[Variable]


def _pool_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    dtype = inputs[0].type.dtype
    if dtype == "bool" or dtype.startswith("complex"):
        return f"no pooling of {dtype} on the device"
    return None


def _gradient_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    dtypes = sorted({x.type.dtype for x in inputs[counterpart_of(type(op)).device_inputs]})
    if len(dtypes) > 1:
        return f"it mixes {' and '.join(dtypes)}"
    return None if dtypes[0].startswith("float") else f"no {dtypes[0]} in this op on the device"


def _patches_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if any("int" not in x.type.dtype for x in inputs[1:]):
        return "the patches' shape and step are no whole numbers"
    return None


register_counterparts("lift_pool", 60, [host.Pool], _pool_unsupported_reason)
register_counterparts(
    "lift_pool_gradient",
    61,
    [host.MaxPoolGrad, host.AveragePoolGrad, host.DownsampleFactorMaxGradGrad, host.MaxPoolRop],
    _gradient_unsupported_reason,
)
register_counterparts("lift_images2neibs", 62, [host.Images2Neibs], _patches_unsupported_reason)

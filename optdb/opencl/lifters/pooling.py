"""Lifters of pooling, its gradients, and patches of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.host import layers as host
from optdb.host.graph import Op, Variable
from optdb.lifters.lifter import op_lifter
from optdb.opencl.device import lifters_db
from optdb.opencl.lifters.support import on_device
from optdb.opencl.ops import neighbours, pool_grads, pooling
from optdb.opencl.transfers import as_opencl_variable
from optdb.topo.db import register_topo

Inputs = Sequence[Variable]


def _pool_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    dtype = inputs[0].type.dtype
    if dtype == "bool" or dtype.startswith("complex"):
        return f"no pooling of {dtype} on the device"
    return None


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=60)
@op_lifter([host.Pool], supports=_pool_unsupported_reason)
def lift_pool(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift pooling; sizes of windows, strides and pads stay on the host."""
    return pooling.OpenCLPool(op.ignore_border, op.mode, op.ndim)(*on_device(inputs[:1], context_name), *inputs[1:])


#: How many of the inputs are arrays; the others are numbers.
_ARRAYS = {host.MaxPoolGrad: 3, host.AveragePoolGrad: 2, host.DownsampleFactorMaxGradGrad: 3, host.MaxPoolRop: 2}


def _gradient_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    dtypes = sorted({x.type.dtype for x in inputs[: _ARRAYS[type(op)]]})
    if len(dtypes) > 1:
        return f"it mixes {' and '.join(dtypes)}"
    return None if dtypes[0].startswith("float") else f"no {dtypes[0]} in this op on the device"


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=61)
@op_lifter(list(_ARRAYS), supports=_gradient_unsupported_reason)
def lift_pool_gradient(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a gradient of pooling, or of that; sizes of windows, strides and pads stay on the host."""
    if isinstance(op, host.MaxPoolGrad):
        lifted = pool_grads.OpenCLMaxPoolGrad(op.ignore_border, op.ndim)
    elif isinstance(op, host.AveragePoolGrad):
        lifted = pool_grads.OpenCLAveragePoolGrad(op.ignore_border, op.mode, op.ndim)
    elif isinstance(op, host.MaxPoolRop):
        lifted = pooling.OpenCLMaxPoolRop(op.ignore_border, op.mode, op.ndim)
    else:
        lifted = pooling.OpenCLDownsampleFactorMaxGradGrad(op.ignore_border, op.mode, op.ndim)
    arrays = _ARRAYS[type(op)]
    return lifted(*on_device(inputs[:arrays], context_name), *inputs[arrays:])


def _patches_unsupported_reason(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    if any("int" not in x.type.dtype for x in inputs[1:]):
        return "the patches' shape and step are no whole numbers"
    return None


@register_topo("fast_run", "fast_compile", "opencl", db=lifters_db, position=62)
@op_lifter([host.Images2Neibs], supports=_patches_unsupported_reason)
def lift_images2neibs(op: Op, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift the cutting of images into patches; their shape and step stay on the host."""
    return neighbours.OpenCLImages2Neibs(op.mode)(as_opencl_variable(inputs[0], context_name), *inputs[1:])

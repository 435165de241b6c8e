"""Theano's pooling, its gradients, and patches of images on the device; sizes, strides and pads stay on the host."""

from __future__ import annotations

from typing import Any

from optdb.codegen import pooling
from optdb.codegen.pooling import ImagePatches
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply, PureOp
from optdb.opencl.lifting import Inputs, array_dtypes, floats_only, register_counterparts
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.shell import Shell


class _OverWindows(Counterpart, Shell):
    """Base class of pooling ops, which take arrays of one dtype."""

    settings = ("ndim", "mode", "ignore_border")
    mode = "max"

    def make_node(self, *inputs: Any) -> Apply:
        """Return a node for arrays of one dtype and for host numbers."""
        node = super().make_node(*inputs)
        dtypes = sorted({node.inputs[i].type.dtype for i in self.device_slots(len(node.inputs))})
        if len(dtypes) > 1:
            raise TypeError(f"{self} takes arrays of the same dtype, not of {' and '.join(dtypes)}")
        return node


class OpenCLPool(_OverWindows, host.Pool):
    """The largest element, the sum or the mean of each window."""

    device_inputs = slice(0, 1)
    computed_by = pooling.PoolWindows


class OpenCLMaxPoolRop(_OverWindows, host.MaxPoolRop):
    """For each window, the element of another array at the position of the window's maximum."""

    device_inputs = slice(0, 2)
    computed_by = pooling.PickAtLargest


class OpenCLDownsampleFactorMaxGradGrad(_OverWindows, host.DownsampleFactorMaxGradGrad):
    """For each window, the sum of another array's elements at all positions of the window's maximum."""

    device_inputs = slice(0, 3)
    computed_by = pooling.SumWhereLargest


class OpenCLMaxPoolGrad(_OverWindows, host.MaxPoolGrad):
    """For each element, the sum of the gradients of the windows whose maximum it equals."""

    device_inputs = slice(0, 3)
    parameters = ("ignore_border", "ndim")
    computed_by = pooling.LargestGradient


class OpenCLAveragePoolGrad(_OverWindows, host.AveragePoolGrad):
    """For each element, its share of the gradients of all windows that sum or average it."""

    device_inputs = slice(0, 2)
    computed_by = pooling.MeanGradient


class OpenCLImages2Neibs(Counterpart, Shell, host.Images2Neibs):
    """The patches of images, as rows of a matrix."""

    device_inputs = slice(0, 1)
    computed_by = ImagePatches
    settings = ("mode",)


def _pool_unsupported_reason(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    dtype = inputs[0].type.dtype
    return f"no pooling of {dtype} on the device" if dtype == "bool" or dtype.startswith("complex") else None


def _pool_gradient_unsupported_reason(
    op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs
) -> str | None:
    dtypes = array_dtypes(op, inputs)
    return f"it mixes {' and '.join(dtypes)}" if len(dtypes) > 1 else floats_only(op, context_name, inputs, outputs)


def _patches_unsupported_reason(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> str | None:
    whole = all("int" in x.type.dtype for x in inputs[1:])
    return None if whole else "the shape and step of patches are not integers"


register_counterparts("lift_pool", 60, [host.Pool], _pool_unsupported_reason)
_GRADIENTS = (host.MaxPoolGrad, host.AveragePoolGrad, host.DownsampleFactorMaxGradGrad, host.MaxPoolRop)
register_counterparts("lift_pool_gradient", 61, _GRADIENTS, _pool_gradient_unsupported_reason)
register_counterparts("lift_images2neibs", 62, [host.Images2Neibs], _patches_unsupported_reason)

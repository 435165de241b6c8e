"""Theano's convolutions and pooling, their gradients, and the extraction of image patches, on the device.

Shapes, sizes, strides and pads stay on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from optdb.codegen import pooling
from optdb.codegen.convolve import operations
from optdb.codegen.operation import Operation
from optdb.codegen.pooling import ImagePatches
from optdb.host.api import ops as host
from optdb.host.api.config import config
from optdb.host.api.graph import Apply, PureOp, Variable
from optdb.host.api.scalars import upcast
from optdb.host.api.variables import TensorVariable, patternbroadcast
from optdb.opencl.lifting import (
    Inputs,
    array_dtypes,
    floats_only,
    lifts,
    on_device,
    register_counterparts,
    unsupported_reason,
)
from optdb.opencl.ops.counterpart import Counterpart, cast_to_common
from optdb.opencl.ops.counterpart_base import counterpart_class
from optdb.opencl.ops.elemwise import cast
from optdb.opencl.ops.shell import Shell, spec_of
from optdb.opencl.registry import get_context
from optdb.opencl.type import OpenCLArrayType


class _Convolution(Counterpart, Shell):
    """Base class of the three convolution ops. The `shape` input of the gradient ops stays on the host."""

    device_inputs = slice(0, 2)
    computed_by: ClassVar[type[operations.ConvolutionOperation]]
    #: The host op's parameters.
    convdim: int
    border_mode: Any
    subsample: tuple[int, ...]
    filter_dilation: tuple[int, ...]
    num_groups: int
    filter_flip: bool
    unshared: bool

    def make_node(self, *inputs: Any) -> Apply:
        node = super().make_node(*inputs)
        dtypes = {x.type.dtype for x in node.inputs[:2]}
        if len(dtypes) > 1 or not all(dtype.startswith("float") for dtype in dtypes):
            raise TypeError(
                f"{self} takes floats of the same dtype, not {' and '.join(sorted(dtypes))}: cast them first"
            )
        return node

    def grad(self, inputs: Sequence[Variable], grads: Sequence[Variable]) -> list[Variable]:
        """Return the gradient for each array, on the device or host that holds the array; the shape has no gradient."""
        gradients = self.gradients(inputs, grads[0])
        of_arrays = [patternbroadcast(grad, x.type.broadcastable) for grad, x in zip(gradients, inputs)]
        moved = [
            x.type.filter_variable(grad) if isinstance(x.type, OpenCLArrayType) else grad
            for grad, x in zip(of_arrays, inputs)
        ]
        return [*moved, *[host.disconnected() for _ in inputs[2:]]]

    def gradients(self, inputs: Sequence[Variable], grad: Variable) -> tuple[Variable, Variable]:
        """Return the gradients with respect to the two arrays."""
        raise NotImplementedError(f"{type(self).__name__} must define gradients(inputs, grad)")

    def _lengths(self, x: Variable) -> Variable:
        """Return the lengths of the axes along which the convolution slides."""
        shape: TensorVariable = host.Shape()(x)
        return shape[-self.convdim :]

    def operation(self, node: Apply) -> Operation:
        numbers = self.convdim, self.border_mode, self.subsample, self.filter_dilation, self.num_groups
        settings = operations.ConvolutionSettings(*numbers, self.filter_flip, self.unshared)
        first, second = map(spec_of, node.inputs[:2])
        return self.computed_by(self.get_context(node), first, second, settings, config.optdb.matmul_precision)


class OpenCLConv(_Convolution, host.AbstractConv):
    """The convolution of images with filters."""

    computed_by = operations.Convolve

    def gradients(self, inputs: Sequence[Variable], grad: Variable) -> tuple[Variable, Variable]:
        image, kernel = inputs
        return (
            OpenCLConvGradInputs.like(self)(kernel, grad, self._lengths(image)),
            OpenCLConvGradWeights.like(self)(image, grad, self._lengths(kernel)),
        )


class OpenCLConvGradWeights(_Convolution, host.AbstractConvGradWeights):
    """A convolution's gradient with respect to its filters, computed from images and the result's gradient."""

    computed_by = operations.FilterGradient

    def gradients(self, inputs: Sequence[Variable], grad: Variable) -> tuple[Variable, Variable]:
        image, top = inputs[:2]
        return OpenCLConvGradInputs.like(self)(grad, top, self._lengths(image)), OpenCLConv.like(self)(image, grad)


class OpenCLConvGradInputs(_Convolution, host.AbstractConvGradInputs):
    """A convolution's gradient with respect to its images, computed from filters and the result's gradient."""

    computed_by = operations.ImageGradient

    def gradients(self, inputs: Sequence[Variable], grad: Variable) -> tuple[Variable, Variable]:
        kernel, top = inputs[:2]
        return OpenCLConvGradWeights.like(self)(grad, top, self._lengths(kernel)), OpenCLConv.like(self)(grad, kernel)


_CONVOLUTIONS = (
    *(host.AbstractConv2d, host.AbstractConv2d_gradWeights, host.AbstractConv2d_gradInputs),
    *(host.AbstractConv3d, host.AbstractConv3d_gradWeights, host.AbstractConv3d_gradInputs),
)

#: The number of work items in a work group on a GPU.
_GROUP = 256


def _convolution_unsupported_reason(
    op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs
) -> str | None:
    dtypes = [x.type.dtype for x in inputs[:2]]
    profile = get_context(context_name).profile
    if not profile.runs_items_serially and profile.max_local_size < _GROUP:
        return f"{profile.name} only runs work groups of fewer than {_GROUP} items"
    if any(dtype.startswith("complex") for dtype in dtypes):
        return "no complex convolutions on the device"
    return floats_only(op, context_name, inputs, outputs) or unsupported_reason(context_name, [upcast(*dtypes)])


@lifts(_CONVOLUTIONS, 57, _convolution_unsupported_reason)
def lift_convolution(op: PureOp, context_name: str | None, inputs: Inputs, outputs: Inputs) -> Any:
    """Lift a convolution or its gradient; a gradient op's `shape` input stays on the host."""
    arrays = cast_to_common([on_device(x, context_name) for x in inputs[:2]], "upcast")
    lifted = counterpart_class(op).like(op)(*arrays, *inputs[2:])
    return cast(lifted, outputs[0].type.dtype)


class _OverWindows(Counterpart, Shell):
    """Base class of pooling ops, which take arrays of one dtype."""

    settings = ("ndim", "mode", "ignore_border")
    mode = "max"

    def make_node(self, *inputs: Any) -> Apply:
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
    """For each window, the sum of another array's elements at all positions where the window's maximum occurs."""

    device_inputs = slice(0, 3)
    computed_by = pooling.SumWhereLargest


class OpenCLMaxPoolGrad(_OverWindows, host.MaxPoolGrad):
    """For each element, the sum of the gradients of all windows whose maximum equals the element."""

    device_inputs = slice(0, 3)
    parameters = ("ignore_border", "ndim")
    computed_by = pooling.LargestGradient


class OpenCLAveragePoolGrad(_OverWindows, host.AveragePoolGrad):
    """For each element, its share of the gradients of all windows that contain it, for pooling by sum or mean."""

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

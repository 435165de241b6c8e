"""Theano's softmax, cross entropies and their gradients on the device; the class labels are on the host."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from optdb.codegen import cross_entropy
from optdb.codegen.operation import Operation
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply, Variable
from optdb.opencl.lifting import floats_only, register_counterparts
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.counterpart_base import on_one_device
from optdb.opencl.ops.shell import Shell
from optdb.opencl.ops.views import OpenCLDimShuffle


class _SoftmaxOp(Counterpart, Shell):
    """Base class of ops whose operation depends on the dtype of the result."""

    common_dtype = 0

    def operation(self, node: Apply) -> Operation:
        return type(self).computed_by(self.get_context(node), node.outputs[0].type.dtype)


class _RowsOp(_SoftmaxOp):
    """Base class of matrix ops that treat a vector as a row."""

    def make_node(self, *inputs: Any) -> Apply:
        """Return a node for matrices, which are cast to the result's dtype; a vector is treated as a row."""
        arrays = on_one_device(inputs)
        return super().make_node(
            *[OpenCLDimShuffle(x.type.broadcastable, ("x", 0))(x) if x.type.ndim == 1 else x for x in arrays]
        )


class OpenCLSoftmax(_RowsOp, host.Softmax):
    """The softmax of each row."""

    computed_by = cross_entropy.Softmax


class OpenCLLogSoftmax(_RowsOp, host.LogSoftmax):
    """The logarithm of a softmax, computed directly rather than from the softmax."""

    computed_by = functools.partial(cross_entropy.Softmax, logarithm=True)


class OpenCLSoftmaxWithBias(_SoftmaxOp, host.SoftmaxWithBias):
    """The softmax of the sum of a matrix and a vector."""

    computed_by = functools.partial(cross_entropy.Softmax, bias=True)


class OpenCLSoftmaxGrad(_RowsOp, host.SoftmaxGrad):
    """The gradient of a softmax, computed from the gradient of its result and the result itself."""

    common_dtype = 1
    computed_by = cross_entropy.SoftmaxGradient


class OpenCLCrossentropySoftmaxArgmax1HotWithBias(Counterpart, Shell, host.CrossentropySoftmaxArgmax1HotWithBias):
    """Each row's cross entropy for its class label, its softmax, and its most likely label."""

    device_inputs = slice(0, 2)
    common_dtype = 0

    def operation(self, node: Apply) -> Operation:
        _, softmax, likeliest = node.outputs
        return cross_entropy.SoftmaxCrossEntropy(self.get_context(node), softmax.type.dtype, likeliest.type.dtype)


class OpenCLCrossentropySoftmax1HotWithBiasDx(Counterpart, Shell, host.CrossentropySoftmax1HotWithBiasDx):
    """The gradient of the cross entropy, computed from the softmax."""

    device_inputs = slice(0, 2)
    common_dtype = 1

    def operation(self, node: Apply) -> Operation:
        return cross_entropy.SoftmaxCrossEntropyGradient(self.get_context(node), node.inputs[1].type.dtype)


class OpenCLCrossentropyAndGradient(Shell):
    """Each row's cross entropy for its class label, the gradient for the matrix, and each row's most likely label.

    The inputs are those of the cross entropy, and the gradient with respect to the cross entropy's first result. This
    gradient is one number, or one number for each row.
    """

    __props__ = ()
    checks_lengths = False

    def make_node(self, x: Variable, b: Variable, y: Variable, dy: Variable) -> Apply:
        if not x.type.dtype == b.type.dtype == dy.type.dtype:
            raise TypeError(f"{self} takes arrays of the same dtype")
        host_node = OpenCLCrossentropySoftmaxArgmax1HotWithBias().make_node(x, b, y)
        return Apply(self, [*host_node.inputs, dy], [out.type() for out in host_node.outputs])

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> Sequence[Any]:
        x, _, y, _ = shapes
        return [y, x, y]

    def operation(self, node: Apply) -> Operation:
        _, gradient, likeliest = node.outputs
        return cross_entropy.SoftmaxCrossEntropy(
            self.get_context(node), gradient.type.dtype, likeliest.type.dtype, gives_gradient=True
        )


class OpenCLCrossentropyCategorical1Hot(Counterpart, Shell, host.CrossentropyCategorical1Hot):
    """For each row of a distribution, the cross entropy for the row's class label."""

    device_inputs = slice(0, 1)

    def operation(self, node: Apply) -> Operation:
        return cross_entropy.CrossEntropy(self.get_context(node), node.inputs[0].type.dtype)


class OpenCLCrossentropyCategorical1HotGrad(Counterpart, Shell, host.CrossentropyCategorical1HotGrad):
    """The gradient of the cross entropy, which is zero except in the column of each row's class label."""

    device_inputs = slice(0, 2)

    def operation(self, node: Apply) -> Operation:
        gradient, distribution, _ = node.inputs
        return cross_entropy.CrossEntropyGradient(self.get_context(node), gradient.type.dtype, distribution.type.dtype)


register_counterparts(
    "lift_softmax", 51, [host.Softmax, host.LogSoftmax, host.SoftmaxWithBias, host.SoftmaxGrad], floats_only
)
_CROSSENTROPY = (host.CrossentropySoftmaxArgmax1HotWithBias, host.CrossentropySoftmax1HotWithBiasDx)
register_counterparts("lift_crossentropy", 54, _CROSSENTROPY)
_LOOKUPS = (host.CrossentropyCategorical1Hot, host.CrossentropyCategorical1HotGrad)
register_counterparts("lift_lookup", 55, _LOOKUPS, floats_only)

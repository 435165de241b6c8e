"""Softmax and its relatives: each row of a matrix becomes weights that add up to 1.

A work item goes over its rows three times: for the largest element, for the sum, and to
write. The largest is taken off first, so that no power of e is too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.layout import launch_striding, steps_of
from optdb.codegen.source import filled, functions, typed
from optdb.host import ops as host
from optdb.host.graph import Apply, Variable
from optdb.opencl.kernels import (
    Context,
    Kernel,
    Kernels,
    OpenCLKernelBase,
    Outputs,
    output_array,
)
from optdb.opencl.ops.counterpart import Counterpart, on_one_device
from optdb.opencl.ops.views import OpenCLDimShuffle

_KERNELS = functions("rows.cl")

#: Element j of row i of a matrix, and of a vector that all rows have.
_OF_MATRIX, _OF_VECTOR = "LOAD(x[(ga_ssize)i * x0 + (ga_ssize)(j) * x1])", "LOAD(b[(ga_ssize)(j) * b0])"


class _OfRows(Counterpart, OpenCLKernelBase):
    """What the ops of this module share: matrices, row by row, in C order at the end."""

    common_dtype = 0

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node for matrices, which get the dtype of the result; a vector is a row."""
        return super().make_node(*map(_as_rows, on_one_device(inputs)))

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return [Kernel(typed(self.code(), node.outputs[0].type.dtype))]

    def code(self) -> str:
        """Return the kernel's code, in which the words of a dtype are left open."""
        raise NotImplementedError

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        shape = inputs[-1].shape if inputs[-1].ndim == 2 else inputs[0].shape
        if any(tuple(x.shape) != tuple(shape)[-x.ndim :] for x in inputs):
            raise ValueError(f"{self} was given arrays of shapes {' and '.join(str(tuple(x.shape)) for x in inputs)}")
        out = output_array(outputs[0], context, shape, node.outputs[0].type.dtype)
        if not out.size:
            return
        args = [arg for x in inputs for arg in (x, *steps_of(x))]
        (kernel,) = kernels.values()
        launch_striding(kernel, context, *shape, *args, out)


def _as_rows(x: Variable) -> Variable:
    return OpenCLDimShuffle(x.type.broadcastable, ("x", 0))(x) if x.type.ndim == 1 else x


def _softmax(element: str, result: str, inputs: str = "ARRAY T *x, ga_ssize x0, ga_ssize x1") -> str:
    return filled(_KERNELS["softmax"], INPUTS=inputs, ELEMENT=element, RESULT=result)


class OpenCLSoftmax(_OfRows, host.Softmax):
    """Powers of e, in each row divided by their sum."""

    def code(self) -> str:
        return _softmax(_OF_MATRIX, "exp(AT(j) - largest) / sum")


class OpenCLLogSoftmax(_OfRows, host.LogSoftmax):
    """The logarithm of a softmax, without the detour."""

    def code(self) -> str:
        return _softmax(_OF_MATRIX, "AT(j) - largest - log_sum")


class OpenCLSoftmaxWithBias(_OfRows, host.SoftmaxWithBias):
    """The softmax of the sum of a matrix and a vector."""

    make_node = Counterpart.make_node

    def code(self) -> str:
        inputs = "ARRAY T *x, ga_ssize x0, ga_ssize x1, ARRAY T *b, ga_ssize b0"
        return _softmax(f"{_OF_MATRIX} + {_OF_VECTOR}", "exp(AT(j) - largest) / sum", inputs)


class OpenCLSoftmaxGrad(_OfRows, host.SoftmaxGrad):
    """The gradient of a softmax, from that of its result and the result."""

    common_dtype = 1

    def code(self) -> str:
        return _KERNELS["softmax_gradient"]

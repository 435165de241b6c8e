"""What a node has to do: floating-point operations by the shapes of its arrays, and the bytes that it touches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from optdb.host.fusion import Composite
from optdb.host.graph import Apply
from optdb.opencl.ops import blas
from optdb.opencl.ops.convolve import OpenCLConv, OpenCLConvGradInputs, OpenCLConvGradWeights
from optdb.opencl.ops.elemwise import OpenCLElemwise
from optdb.opencl.ops.reduce import OpenCLCAReduce
from optdb.opencl.scalars.program import Program
from optdb.runtime.arrays import Array

#: Values of a node's inputs, or outputs.
Given = Sequence[Any]


def operations(node: Apply, inputs: Given, outputs: Given) -> int | None:
    """Return how many floating-point operations a node makes; None if nobody has said so for its op.

    A product and a sum are two, and so is each of what a scalar op does: an exponential counts as one. `inputs` and
    `outputs` are the node's values.
    """
    count = next((_COUNTS[kind] for kind in type(node.op).__mro__ if kind in _COUNTS), None)
    return None if count is None else int(count(node.op, inputs, outputs))


def touched(arrays: Iterable[Any], buffers: Sequence[Any]) -> int:
    """Return how many bytes a launch touches.

    Parameters
    ----------
    arrays : iterable
        Inputs and outputs of the node. Elements that are repeated, as by a stride of 0, count once.
    buffers : sequence of pyopencl.MemoryObject
        What the launch was given; those that no array lies in are memory for the op's own use, and count in full.
    """
    given = {buffer.int_ptr: buffer.size for buffer in buffers}
    found = [array for array in arrays if isinstance(array, Array) and array.base_data is not None]
    inside = [array for array in found if array.base_data.int_ptr in given]
    outside = set(given) - {array.base_data.int_ptr for array in inside}
    return sum(map(_distinct, inside)) + sum(given[handle] for handle in outside)


def _distinct(array: Array) -> int:
    lengths = [length for length, stride in zip(array.shape, array.strides) if stride or not length]
    return math.prod(lengths) * array.dtype.itemsize


def _size(value: Any) -> int:
    return math.prod(np.shape(value))


def _length(op: Any) -> int:
    """Return how many scalar ops there are in one."""
    if op is None:
        return 0
    if isinstance(op, Program):
        return len(op.steps)
    return sum(_length(node.op) for node in op.fgraph.apply_nodes) if isinstance(op, Composite) else 1


def _reduction(op: Any, inputs: Given, outputs: Given) -> int:
    """Return the operations of a reduction: those on the elements that it reduces, and those of its epilogue."""
    reduced, _ = op.parted(inputs)
    elements = math.prod(np.broadcast_shapes(*map(np.shape, reduced)))
    return (1 + _length(op.pre_scalar_op)) * elements + _length(op.post_scalar_op) * _size(outputs[0])


def _product(first: int) -> Callable[[Any, Given, Given], int]:
    """Return what counts a product of which input `first` is the left factor."""
    return lambda op, inputs, outputs: 2 * _size(outputs[0]) * inputs[first].shape[-1]


def _convolution(out: Any, weights: Any) -> int:
    """Return the operations of a convolution, or of a gradient of one, which are as many."""
    return 2 * _size(out) * (_size(weights) // max(weights.shape[0], 1))


_COUNTS: dict[type, Callable[[Any, Given, Given], int]] = {
    OpenCLElemwise: lambda op, inputs, outputs: _length(op.scalar_op) * _size(outputs[0]),
    OpenCLCAReduce: _reduction,
    **dict.fromkeys((blas.OpenCLDot22, blas.OpenCLDot22Scalar, blas.OpenCLDot, blas.OpenCLBatchedDot), _product(0)),
    **dict.fromkeys((blas.OpenCLGemm, blas.OpenCLGemv), _product(2)),
    blas.OpenCLGer: lambda op, inputs, outputs: 2 * _size(outputs[0]),
    OpenCLConv: lambda op, inputs, outputs: _convolution(outputs[0], inputs[1]),
    OpenCLConvGradWeights: lambda op, inputs, outputs: _convolution(inputs[1], outputs[0]),
    OpenCLConvGradInputs: lambda op, inputs, outputs: _convolution(inputs[1], inputs[0]),
}

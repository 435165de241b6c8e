"""Ops with their own device operations: sorts, searches, softmax, and Fourier transforms of real arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.extra_ops import SearchsortedOp
from pytensor.tensor.fft import IRFFTOp, RFFTOp
from pytensor.tensor.math import Argmax
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.special import LogSoftmax, Softmax

from optdb.codegen import cross_entropy
from optdb.codegen.operation import Operation
from optdb.codegen.real_fourier import InverseRealFourier, RealFourier
from optdb.codegen.searching import FindLargest, SearchSorted, compared_in
from optdb.codegen.sorting import SortAlongAxis
from optdb.device.expressions import broadcast, reshaped, transposed
from optdb.device.functions.host_parts import Value
from optdb.device.tensors import SHORT, Application, Constant, Tensor, spec_of
from optdb.pytensor.dispatch import OnHost, described, tensors_of
from optdb.pytensor.tracing import GraphTrace
from optdb.runtime.sizes import is_at_most


def computed(
    make: Callable[..., Operation], inputs: Sequence[Any], shape: Sequence[int], dtype: str, *parameters: Any
) -> Tensor:
    """Return the output of the operation that `make` creates for a context and the parameters.

    The inputs are tensors, numbers or NumPy arrays; `shape` and `dtype` are those of the output.
    """
    if not math.prod(shape):
        return broadcast(Constant(np.zeros((), dtype)), shape)
    return Application(lambda context: make(context, *parameters), inputs, [(shape, dtype)]).outputs[0]


def _real(inputs: Sequence[Value]) -> list[Tensor]:
    """Return the inputs as tensors; raise OnHost if an input is complex."""
    tensors = tensors_of(inputs)
    for x in tensors:
        if np.dtype(x.dtype).kind == "c":
            raise OnHost(f"{x.dtype} numbers cannot be compared on the device")
    return tensors


@described.register(SortOp)
@described.register(ArgSortOp)
def _sort(op: Any, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    (x,) = _real(inputs)
    dtype = node.outputs[0].type.dtype
    return [computed(SortAlongAxis, [x, op.axis], x.shape, dtype, spec_of(x), isinstance(op, ArgSortOp))]


@described.register(SearchsortedOp)
def _searchsorted(op: SearchsortedOp, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    if len(inputs) == 3:
        raise OnHost("the host checks a sorter")
    x, values = _real(inputs)
    reason = trace.tracer.context.unsupported_reason(compared_in(x.dtype, values.dtype))
    if reason is not None:
        raise OnHost(reason)
    if not x.size:
        return [broadcast(Constant(np.zeros((), "int64")), values.shape)]
    return [computed(SearchSorted, [x, values], values.shape, "int64", spec_of(x), spec_of(values), op.side)]


@described.register(Argmax)
def _argmax(op: Argmax, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    (x,) = _real(inputs)
    axes = tuple(range(x.ndim)) if op.axis is None else op.axis
    if not all(x.shape[axis] for axis in axes):
        raise ValueError(f"argmax of an array of shape {x.shape} over axes {axes} has no elements")
    shape = [length for axis, length in enumerate(x.shape) if axis not in axes]
    return [computed(FindLargest, [x], shape, "int64", spec_of(x), axes, False)]


@described.register(Softmax)
@described.register(LogSoftmax)
def _softmax(op: Any, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    (x,) = tensors_of(inputs)
    axes = [axis % x.ndim for axis in (range(x.ndim) if op.axis is None else op.axis)]
    order = [*(axis for axis in range(x.ndim) if axis not in axes), *axes]
    columns = math.prod(x.shape[axis] for axis in axes)
    profile = trace.context.profile
    # On a CPU, and for short rows, loops that other nodes are fused with are faster; a few long rows would leave most
    # compute units idle.
    if profile.runs_items_serially or is_at_most(columns, SHORT) or x.dtype not in ("float32", "float64"):
        return trace.inner(op.fgraph, node)
    rows = math.prod(x.shape[axis] for axis in order[: -len(axes)])
    if rows < profile.compute_units:
        return trace.inner(op.fgraph, node)
    turned = transposed(x, order)
    matrix = reshaped(turned, (rows, columns))
    result = computed(cross_entropy.Softmax, [matrix], matrix.shape, x.dtype, x.dtype, isinstance(op, LogSoftmax))
    return [transposed(reshaped(result, turned.shape), [order.index(axis) for axis in range(x.ndim)])]


@described.register(RFFTOp)
@described.register(IRFFTOp)
def _fourier(op: Any, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    x, _ = tensors_of(inputs)
    lengths = np.asarray(trace.concrete(node.inputs[1]))
    is_inverse = isinstance(op, IRFFTOp)
    ndim = x.ndim - is_inverse
    if not x.dtype.startswith("float"):
        raise OnHost(f"numbers of {x.dtype} are transformed on the host")
    if not 1 <= lengths.size <= ndim or lengths.min() < 1:
        raise OnHost("the host raises the error for these lengths")
    shape = [*x.shape[: ndim - lengths.size], *map(int, lengths)]
    if not is_inverse:
        shape = [*shape[:-1], shape[-1] // 2 + 1, 2]
    make = InverseRealFourier if is_inverse else RealFourier
    return [computed(make, [x, lengths], shape, node.outputs[0].type.dtype, spec_of(x))]

"""Ops that create, reshape, join, split and check arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.compile.ops import DeepCopyOp, TypeCastingOp
from pytensor.graph.basic import Apply
from pytensor.graph.type import Type
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import (
    Alloc,
    AllocEmpty,
    ARange,
    ExtractDiag,
    Eye,
    Join,
    MakeVector,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.extra_ops import CpuContiguous, CumOp
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape

from optdb.device.expressions import applied, broadcast, cast, joined, reshaped, strided, transposed, view
from optdb.device.functions.host_parts import Value
from optdb.device.tensors import Constant, Coordinate, Iota, Scanned, Stripe, Tensor, length_tensor
from optdb.pytensor.dispatch import OnHost, described, is_array, tensors_of
from optdb.pytensor.tracing import GraphTrace
from optdb.runtime.sizes import SymInt, as_int, is_same, largest, lengths_of


@described.register(Shape)
def _shape(op: Shape, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    (x,) = tensors_of(inputs)
    return [length_tensor(x.shape, (x.ndim,))]


@described.register(Shape_i)
def _shape_i(op: Shape_i, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    (x,) = tensors_of(inputs)
    return [length_tensor([x.shape[op.i]], ())]


@described.register(SpecifyShape)
def _specify_shape(op: SpecifyShape, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    (x,) = tensors_of(inputs[:1])
    for axis, var in enumerate(node.inputs[1:]):
        if not is_array(var):
            continue
        wanted = as_int(trace.concrete(var))
        if wanted != x.shape[axis]:
            raise AssertionError(
                f"SpecifyShape: dim {axis} of input has shape {x.shape[axis]}, expected {wanted}: {node.inputs[0]}"
            )
    return [x]


@described.register(Reshape)
def _reshape(op: Reshape, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    x, _ = tensors_of(inputs)
    shape = lengths_of(trace.concrete(node.inputs[1]))
    if shape.count(-1) == 1:
        others = math.prod(length for length in shape if length != -1)
        if not others or x.size % others:
            raise ValueError(f"cannot reshape an array of shape {x.shape} into shape {tuple(shape)}")
        shape[shape.index(-1)] = x.size // others
    if any(length < 0 for length in shape):
        raise ValueError(f"cannot reshape an array of shape {x.shape} into shape {tuple(shape)}")
    return [reshaped(x, shape)]


@described.register(MakeVector)
def _make_vector(op: MakeVector, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    dtype = node.outputs[0].type.dtype
    if not inputs:
        return [Constant(np.zeros(0, dtype))]
    return [joined([reshaped(cast(x, dtype), (1,)) for x in tensors_of(inputs)], 0)]


@described.register(TensorFromScalar)
@described.register(ScalarFromTensor)
@described.register(CpuContiguous)
@described.register(TypeCastingOp)
@described.register(DeepCopyOp)
def _same(op: object, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    before, after = node.inputs[0].type, node.outputs[0].type
    if not isinstance(before, Type) or getattr(before, "dtype", None) != getattr(after, "dtype", None):
        raise OnHost(f"{op} changes the type {before} to {after}")
    return [inputs[0]]


@described.register(Alloc)
def _alloc(op: Alloc, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    value, *_ = tensors_of(inputs)
    return [broadcast(value, trace.numbers(node.inputs[1:]))]


@described.register(AllocEmpty)
def _alloc_empty(op: AllocEmpty, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    return [broadcast(Constant(np.zeros((), op.dtype)), trace.numbers(node.inputs))]


@described.register(ARange)
def _arange(op: ARange, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    start, stop, step = bounds = [trace.concrete(var) for var in node.inputs]
    dtype = node.outputs[0].type.dtype
    if any(isinstance(bound, SymInt) for bound in bounds):
        start, stop, step = map(as_int, bounds)
        length = largest(-(-(stop - start) // step), 0)
    else:
        length = len(np.arange(start, stop, step))
    if is_same(start, 0) and is_same(step, 1):
        return [cast(Iota(length), dtype)]
    number = "int64" if np.dtype(dtype).kind in "iub" else dtype
    first, by = (cast(reshaped(_tensor(value, number), (1,)), number) for value in (start, step))
    index = cast(Iota(length), number)
    return [cast(applied("Add", number, first, applied("Mul", number, by, index)), dtype)]


def _tensor(value: Any, dtype: str) -> Tensor:
    return length_tensor([value], ()) if isinstance(value, SymInt) else Constant(np.asarray(value, dtype))


@described.register(Eye)
def _eye(op: Eye, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    rows, columns, offset = trace.numbers(node.inputs)
    row, column = transposed(Iota(rows), [0, None]), transposed(Iota(columns), [None, 0])
    shifted = applied("Add", "int64", row, Constant(np.full((1, 1), offset, "int64")))
    return [cast(applied("EQ", "bool", shifted, column), op.dtype)]


@described.register(ExtractDiag)
def _extract_diag(op: ExtractDiag, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    (x,) = tensors_of(inputs)
    axis1, axis2 = op.axis1 % x.ndim, op.axis2 % x.ndim
    row, column = max(-op.offset, 0), max(op.offset, 0)
    length = max(min(x.shape[axis1] - row, x.shape[axis2] - column), 0)
    kept = [axis for axis in range(x.ndim) if axis not in (axis1, axis2)]
    along = len(kept)
    coordinates = [Coordinate(0, ((kept.index(axis), 1),)) if axis in kept else Coordinate() for axis in range(x.ndim)]
    coordinates[axis1], coordinates[axis2] = Coordinate(row, ((along, 1),)), Coordinate(column, ((along, 1),))
    return [view(x, [*[x.shape[axis] for axis in kept], length], coordinates)]


@described.register(Join)
def _join(op: Join, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    dtype = node.outputs[0].type.dtype
    parts = tensors_of(inputs)
    return [joined([cast(x, dtype) for x in parts], op.axis % parts[0].ndim)]


@described.register(CumOp)
def _cumulate(op: CumOp, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    (x,) = tensors_of(inputs)
    x = cast(x, node.outputs[0].type.dtype)
    if np.dtype(x.dtype).kind not in "iuf":
        raise OnHost(f"sums of {x.dtype} are not supported on the device")
    if op.axis is None:
        x = reshaped(x, (x.size,))
    return [Scanned({"add": "Add", "mul": "Mul"}[op.mode], x, (op.axis or 0) % x.ndim)]


@described.register(Split)
def _split(op: Split, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    x, _ = tensors_of(inputs)
    sizes = lengths_of(trace.concrete(node.inputs[1]))
    axis = op.axis % x.ndim
    if any(size < 0 for size in sizes):
        raise ValueError(f"Split lengths must be non-negative, and are {sizes}")
    if len(sizes) != op.len_splits or sum(sizes) != x.shape[axis]:
        raise ValueError(
            f"Split sizes {sizes} do not sum up to the input length along axis {axis}, which is {x.shape[axis]}"
        )
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    before, after = ([Stripe(0, 1, n) for n in others] for others in (x.shape[:axis], x.shape[axis + 1 :]))
    return [strided(x, [*before, Stripe(start, 1, size), *after]) for start, size in zip(starts, sizes)]


@described.register(CheckAndRaise)
def _check(op: CheckAndRaise, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    x, *conditions = inputs
    for condition in tensors_of(conditions):
        if not isinstance(condition, Constant):
            trace.tracer.check(condition, lambda: op.exc_type(op.msg))
        elif not condition.value.all():
            raise op.exc_type(op.msg)
    return [x]

"""Ops that create arrays from numbers: filled arrays, ranges, diagonals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.basic import Alloc, AllocEmpty, ARange, ExtractDiag, Eye

from optdb.device.expressions import applied, broadcast, cast, transposed, view
from optdb.device.functions.host_parts import Value
from optdb.device.tensors import Constant, Coordinate, Iota
from optdb.pytensor.dispatch import NodeTrace, described, tensors_of


@described.register(Alloc)
def _alloc(op: Alloc, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    value, *_ = tensors_of(inputs)
    return [broadcast(value, trace.numbers(node.inputs[1:]))]


@described.register(AllocEmpty)
def _alloc_empty(op: AllocEmpty, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    return [broadcast(Constant(np.zeros((), op.dtype)), trace.numbers(node.inputs))]


@described.register(ARange)
def _arange(op: ARange, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    start, stop, step = (trace.concrete(var)[()] for var in node.inputs)
    dtype = node.outputs[0].type.dtype
    length = len(np.arange(start, stop, step))
    number = "int64" if np.dtype(dtype).kind in "iub" else dtype
    first, by = (Constant(np.asarray(value, number).reshape(1)) for value in (start, step))
    index = cast(Iota(length), number)
    return [cast(applied("Add", number, first, applied("Mul", number, by, index)), dtype)]


@described.register(Eye)
def _eye(op: Eye, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    rows, columns, offset = trace.numbers(node.inputs)
    row, column = transposed(Iota(rows), [0, None]), transposed(Iota(columns), [None, 0])
    shifted = applied("Add", "int64", row, Constant(np.full((1, 1), offset, "int64")))
    return [cast(applied("EQ", "bool", shifted, column), op.dtype)]


@described.register(ExtractDiag)
def _extract_diag(op: ExtractDiag, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    (x,) = tensors_of(inputs)
    axis1, axis2 = op.axis1 % x.ndim, op.axis2 % x.ndim
    row, column = max(-op.offset, 0), max(op.offset, 0)
    length = max(min(x.shape[axis1] - row, x.shape[axis2] - column), 0)
    kept = [axis for axis in range(x.ndim) if axis not in (axis1, axis2)]
    along = len(kept)
    coordinates = [Coordinate(0, ((kept.index(axis), 1),)) if axis in kept else Coordinate() for axis in range(x.ndim)]
    coordinates[axis1], coordinates[axis2] = Coordinate(row, ((along, 1),)), Coordinate(column, ((along, 1),))
    return [view(x, [*[x.shape[axis] for axis in kept], length], coordinates)]

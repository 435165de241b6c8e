"""Shapes, and ops that change only shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pytensor.compile.ops import DeepCopyOp, TypeCastingOp
from pytensor.graph.basic import Apply
from pytensor.graph.type import Type
from pytensor.tensor.basic import MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.extra_ops import CpuContiguous
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape

from optdb.device.expressions import cast, joined, reshaped
from optdb.device.functions.host_parts import Value
from optdb.device.tensors import Constant
from optdb.pytensor.dispatch import NodeTrace, OnHost, described, is_array, tensors_of


@described.register(Shape)
def _shape(op: Shape, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    (x,) = tensors_of(inputs)
    return [Constant(np.asarray(x.shape, "int64"))]


@described.register(Shape_i)
def _shape_i(op: Shape_i, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    (x,) = tensors_of(inputs)
    return [Constant(np.asarray(x.shape[op.i], "int64"))]


@described.register(SpecifyShape)
def _specify_shape(op: SpecifyShape, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    (x,) = tensors_of(inputs[:1])
    for axis, var in enumerate(node.inputs[1:]):
        if not is_array(var):
            continue
        wanted = int(trace.concrete(var))
        if wanted != x.shape[axis]:
            raise AssertionError(
                f"SpecifyShape: dim {axis} of input has shape {x.shape[axis]}, expected {wanted}: {node.inputs[0]}"
            )
    return [x]


@described.register(Reshape)
def _reshape(op: Reshape, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    x, _ = tensors_of(inputs)
    shape = [int(length) for length in trace.concrete(node.inputs[1])]
    if shape.count(-1) == 1:
        others = math.prod(length for length in shape if length != -1)
        if not others or x.size % others:
            raise ValueError(f"cannot reshape an array of shape {x.shape} into shape {tuple(shape)}")
        shape[shape.index(-1)] = x.size // others
    if any(length < 0 for length in shape):
        raise ValueError(f"cannot reshape an array of shape {x.shape} into shape {tuple(shape)}")
    return [reshaped(x, shape)]


@described.register(MakeVector)
def _make_vector(op: MakeVector, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    dtype = node.outputs[0].type.dtype
    if not inputs:
        return [Constant(np.zeros(0, dtype))]
    return [joined([reshaped(cast(x, dtype), (1,)) for x in tensors_of(inputs)], 0)]


@described.register(TensorFromScalar)
@described.register(ScalarFromTensor)
@described.register(CpuContiguous)
@described.register(TypeCastingOp)
@described.register(DeepCopyOp)
def _same(op: object, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    before, after = node.inputs[0].type, node.outputs[0].type
    if not isinstance(before, Type) or getattr(before, "dtype", None) != getattr(after, "dtype", None):
        raise OnHost(f"{op} changes the type {before} to {after}")
    return [inputs[0]]

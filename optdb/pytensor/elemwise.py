"""Elementwise ops, reductions, and transpositions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.scalar.basic import ScalarOp, TrueDiv
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise

from optdb.codegen.reductions.folds import FOLDS
from optdb.codegen.scalars.code import computed_dtypes
from optdb.device.functions.host_parts import Value
from optdb.device.tensors import Tensor, cast, folded, mapped, transposed
from optdb.pytensor.dispatch import NodeTrace, OnHost, described, tensors_of
from optdb.pytensor.scalars import _NAMES, program_of


@described.register(ScalarOp)
def _scalar(op: ScalarOp, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    return _mapped(op, node, tensors_of(inputs), trace)


@described.register(Elemwise)
def _elemwise(op: Elemwise, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    arrays = tensors_of(inputs)
    _check_lengths(node, arrays)
    if not arrays:
        raise OnHost(f"{op} takes no inputs")
    return _mapped(op.scalar_op, node, arrays, trace)


def _mapped(op: ScalarOp, node: Apply, inputs: Sequence[Tensor], trace: NodeTrace) -> list[Value]:
    """Return a scalar op applied to tensors; raise OnHost if it needs a dtype that the device lacks."""
    if isinstance(op, TrueDiv) and all(x.dtype[0] in "iub" for x in inputs):
        # floatX decides the result's dtype, and may have changed since the node was made.
        inputs = [cast(x, node.outputs[0].type.dtype) for x in inputs]
    program = program_of(op, [x.dtype for x in inputs])
    for dtype in computed_dtypes(program) - {var.type.dtype for var in (*node.inputs, *node.outputs)}:
        reason = trace.tracer.context.unsupported_reason(dtype)
        if reason is not None:
            raise OnHost(f"{op} computes in {dtype}, and {reason}")
    return [*mapped(program, inputs)]


def _check_lengths(node: Apply, inputs: Sequence[Tensor]) -> None:
    """Raise ValueError if lengths differ, or if an axis broadcasts although its type does not say so."""
    for axis in range(node.outputs[0].type.ndim):
        lengths = [x.shape[axis] for x in inputs]
        if all(length == lengths[0] for length in lengths):
            continue
        known = [var.type.broadcastable[axis] for var in node.inputs]
        others = {length for length, is_one in zip(lengths, known) if not is_one}
        if len(others) <= 1:
            continue
        shapes = ", ".join(str(x.shape) for x in inputs)
        if 1 in others and len(others) == 2:
            raise ValueError(
                f"Runtime broadcasting not allowed. Axis {axis} has different lengths in the inputs of {node.op}, of "
                f"shapes {shapes}, and one of them is 1, which its type does not say. If broadcasting was intended, "
                "use `specify_broadcastable` on the input."
            )
        raise ValueError(f"Incompatible Elemwise input shapes at axis {axis} of {node.op}: {shapes}")


@described.register(CAReduce)
def _reduce(op: CAReduce, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    (x,), (out,) = tensors_of(inputs), node.outputs
    axes = range(x.ndim) if op.axis is None else [axis % x.ndim for axis in op.axis]
    name = type(op.scalar_op).__name__
    name = _NAMES.get(name, name)
    if name not in FOLDS:
        raise OnHost(f"{name} is not folded on the device")
    acc_dtype = getattr(op, "acc_dtype", None) or out.type.dtype
    if trace.tracer.context.unsupported_reason(acc_dtype) is not None:
        acc_dtype = out.type.dtype  # sums of float32 are in float64 where the device has it
    if np.dtype(acc_dtype).kind == "c" and name != "Add":
        raise OnHost(f"{name} of complex numbers is not folded on the device")
    _check_scalar(op.scalar_op, acc_dtype)
    return [folded(name, x, list(axes), out.type.dtype, acc_dtype, _initial_value(op, out.type.dtype))]


def _check_scalar(scalar_op: ScalarOp, dtype: str) -> None:
    """Raise OnHost if a scalar op does not accept two numbers of a dtype: the host raises the error."""
    try:
        program_of(scalar_op, [dtype] * 2)
    except TypeError as error:
        raise OnHost(f"{scalar_op} takes no {dtype}: {error}") from error


def _initial_value(op: CAReduce, dtype: str) -> Any:
    """Return the result of a reduction over no elements; None if it is the scalar's identity or an error."""
    return op.initial_value(dtype) if hasattr(op, "initial_value") else None


@described.register(DimShuffle)
def _dimshuffle(op: DimShuffle, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    order: list[Any] = [None if axis == "x" else axis for axis in op.new_order]
    (x,) = tensors_of(inputs)
    return [transposed(x, order)]

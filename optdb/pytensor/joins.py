"""Joins, splits and repetitions of arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.basic import Join, Split
from pytensor.tensor.extra_ops import CumOp

from optdb.device.expressions import cast, joined, reshaped, strided
from optdb.device.functions.host_parts import Value
from optdb.device.tensors import Scanned, Stripe, Tensor
from optdb.pytensor.dispatch import NodeTrace, OnHost, described, tensors_of


@described.register(Join)
def _join(op: Join, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    dtype = node.outputs[0].type.dtype
    parts = tensors_of(inputs)
    return [joined([cast(x, dtype) for x in parts], op.axis % parts[0].ndim)]


@described.register(CumOp)
def _cumulate(op: CumOp, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    (x,) = tensors_of(inputs)
    x = cast(x, node.outputs[0].type.dtype)
    if np.dtype(x.dtype).kind not in "iuf":
        raise OnHost(f"sums of {x.dtype} are not supported on the device")
    if op.axis is None:
        x = reshaped(x, (x.size,))
    return [Scanned({"add": "Add", "mul": "Mul"}[op.mode], x, (op.axis or 0) % x.ndim)]


@described.register(Split)
def _split(op: Split, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    x, _ = tensors_of(inputs)
    lengths = [int(length) for length in trace.concrete(node.inputs[1])]
    axis = op.axis % x.ndim
    if any(length < 0 for length in lengths):
        raise ValueError(f"Split lengths must be non-negative, and are {lengths}")
    if len(lengths) != op.len_splits or sum(lengths) != x.shape[axis]:
        raise ValueError(
            f"Split sizes {lengths} do not sum up to the input length along axis {axis}, which is {x.shape[axis]}"
        )
    starts = [sum(lengths[:number]) for number in range(len(lengths))]
    return [along(x, axis, start, length) for start, length in zip(starts, lengths)]


def along(x: Tensor, axis: int, start: int, length: int) -> Tensor:
    """Return a range of a tensor along an axis."""
    stripes = [Stripe(0, 1, n) for n in x.shape]
    stripes[axis] = Stripe(start, 1, length)
    return strided(x, stripes)

"""The rules for reductions and matrix products, in which a worker's sum over its part of the batch is a summand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optdb.distributed.errors import NotSplittable
from optdb.distributed.sharding.layouts import (
    Partial,
    Replicated,
    Sharded,
    Value,
    Vector,
    common_layout,
    has_zeros,
    with_layout_of,
)
from optdb.distributed.sharding.spreading import Spreader, remade, rule
from optdb.host.api import ops, scalars
from optdb.host.api.graph import Apply, Variable


@rule(ops.CAReduce)
def reduce(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Reduce along axes. If the reduction is a sum over the batch, the result is a summand."""
    (value,) = inputs
    op = node.op
    assert isinstance(op, ops.CAReduce)
    is_sum = isinstance(op.scalar_op, scalars.Add)
    axes = range(node.inputs[0].type.ndim) if op.axis is None else op.axis
    if isinstance(value, Vector):
        result = value.entries[0]
        for entry in value.entries[1:]:
            result = spreader.apply(ops.Elemwise(op.scalar_op), result, entry)
        return [result]
    if isinstance(value, Sharded):
        if value.axis not in axes:
            return [_reduced(value, var, axes) for var in remade(node, inputs)]
        if is_sum:
            return list(map(Partial, remade(node, inputs)))
        raise NotSplittable(node, "it reduces over the batch by an operation other than a sum")
    if isinstance(value, Partial) and is_sum:
        return list(map(Partial, remade(node, inputs)))
    if isinstance(value, Replicated):
        return [Replicated(out, is_sum and value.zero) for out in remade(node, inputs)]
    return spreader.replicated(node, inputs)


def _reduced(value: Sharded, var: Variable, axes: Sequence[int]) -> Sharded:
    """Return the layout that an array has after some axes are removed."""
    return replace(value, var=var, axis=value.axis - sum(axis < value.axis for axis in axes))


@rule(ops.MaxAndArgmax, ops.Argmax)
def argmax(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Find the largest element of each row."""
    (value,) = inputs
    assert isinstance(node.op, ops.MaxAndArgmax | ops.Argmax)
    axes = range(node.inputs[0].type.ndim) if node.op.axis is None else node.op.axis
    if isinstance(value, Sharded):
        if value.axis in axes:
            raise NotSplittable(node, "it finds the largest element of the whole batch")
        return [_reduced(value, out, axes) for out in remade(node, inputs)]
    return spreader.replicated(node, inputs)


@rule(ops.Dot)
def dot(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Multiply matrices. If the product sums over the examples, the result is a summand."""
    left, right = inputs
    return _contract(spreader, node, inputs, left.var.type.ndim - 1, max(right.var.type.ndim - 2, 0), 0)


@rule(ops.BatchedDot)
def batched_dot(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Multiply matrices pairwise."""
    left, right = inputs
    if isinstance(left, Sharded) and isinstance(right, Sharded) and left.axis == right.axis == 0:
        return [with_layout_of(common_layout(node, inputs), remade(node, inputs)[0])]
    if all(not isinstance(value, Sharded) or value.axis for value in inputs):
        return _contract(spreader, node, inputs, left.var.type.ndim - 1, 1, 1)
    raise NotSplittable(node, "one operand is split along the batch axis and the other one is not")


def _contract(
    spreader: Spreader, node: Apply, inputs: list[Value], left_axis: int, right_axis: int, pairs: int
) -> list[Value]:
    """Return a product that sums over `left_axis` and `right_axis`; both inputs share the first `pairs` axes."""
    left, right = inputs
    splits = [value for value in inputs if isinstance(value, Sharded)]
    if isinstance(left, Sharded) and isinstance(right, Sharded):
        if left.axis == left_axis and right.axis == right_axis and left.interleaved == right.interleaved:
            return list(map(Partial, remade(node, inputs)))
        raise NotSplittable(node, "it multiplies each example by all others")
    if not splits:
        summands = [value for value in inputs if isinstance(value, Partial)]
        if len(summands) == 1 and all(isinstance(value, Partial | Replicated) for value in inputs):
            return list(map(Partial, remade(node, inputs)))
        is_zero = any(map(has_zeros, inputs))
        return [Replicated(out, is_zero) for out in remade(node, spreader.wholes(inputs, node))]
    contracted = left_axis if splits[0] is left else right_axis
    if splits[0].axis == contracted:
        raise NotSplittable(node, "it sums over the batch, but only one operand is split")
    local = [value if value is splits[0] else spreader.whole(value, node) for value in inputs]
    axis = splits[0].axis
    if splits[0] is right:
        axis = left.var.type.ndim - 1 + (axis - pairs - (axis > right_axis))
    return [replace(splits[0], var=out, axis=axis) for out in remade(node, local)]

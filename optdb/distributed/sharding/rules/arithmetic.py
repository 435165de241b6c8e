"""The rules for elementwise ops, reductions and matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optdb.distributed.errors import NotSplittable
from optdb.distributed.sharding.layouts import (
    Length,
    Own,
    Partial,
    Replicated,
    RowNumbers,
    Sharded,
    Value,
    Vector,
    common_layout,
    has,
    has_zeros,
    with_layout_of,
)
from optdb.distributed.sharding.spreading import Spreader, remade, rule
from optdb.host.api import ops, scalars
from optdb.host.api.graph import Apply, Variable
from optdb.host.theano.functions.originals import tensor

#: Scalar ops that are linear in one input if the other inputs are equal on all workers.
_LINEAR = (scalars.Identity, scalars.Neg, scalars.Mul, scalars.Cast)
#: Scalar ops that are linear in all inputs jointly.
_SUMS = (scalars.Add, scalars.Sub)


@rule(ops.Elemwise)
def elementwise(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Apply an elementwise op.

    Results are `Sharded` if an input is `Sharded`; sums and multiples of `Partial` inputs are `Partial`.
    """
    op = _scalar_op(node)
    if has(inputs, Vector):
        return [_elementwise_vector(spreader, node, inputs)]
    if (
        isinstance(op, scalars.Second)
        and all(node.inputs[0].type.broadcastable)
        and node.outputs[0].type == inputs[1].var.type
    ):
        return [inputs[1]]  # the first input does not affect the shape
    if has(inputs, RowNumbers):
        if len(inputs) == 1 and isinstance(op, scalars.Cast | scalars.Identity):
            return [RowNumbers(remade(node, inputs)[0])]
        raise NotSplittable(node, "it computes with row numbers, which differ between workers")
    if has(inputs, Sharded):
        return _rowwise(spreader, node, inputs)
    if (
        isinstance(op, scalars.Second)
        and isinstance(inputs[0], Partial | Replicated)
        and not isinstance(inputs[1], Length)
    ):
        return [with_layout_of(inputs[1], remade(node, inputs)[0])]
    if has(inputs, Partial):
        if _is_linear(op, node, inputs):
            return [Partial(remade(node, inputs)[0])]
        inputs = [spreader.whole(value, node) if isinstance(value, Partial) else value for value in inputs]
        return spreader.follow(node, inputs)
    if has(inputs, Own):
        others = [value if isinstance(value, Own) else spreader.whole(value, node) for value in inputs]
        return list(map(Own, remade(node, others)))
    if has(inputs, Length):
        return [_of_lengths(spreader, node, inputs)]
    keeps_zero = isinstance(op, (*_LINEAR, *_SUMS)) and all(map(has_zeros, inputs))
    return [Replicated(out, keeps_zero) for out in remade(node, inputs)]


def _scalar_op(node: Apply) -> scalars.ScalarOp:
    assert isinstance(node.op, ops.Elemwise)
    return node.op.scalar_op


def _is_linear(op: object, node: Apply, inputs: list[Value]) -> bool:
    """Return whether an elementwise op is linear, so that it maps summands of its inputs to a summand of its result."""
    summands = [isinstance(value, Partial) for value in inputs]
    zeros = list(map(has_zeros, inputs))
    known = all(isinstance(value, Partial | Replicated) for value in inputs)
    if not known:
        return False
    if isinstance(op, scalars.Cast) and node.outputs[0].type.dtype.startswith(("int", "uint", "bool")):
        return node.inputs[0].type.dtype.startswith(("int", "uint"))
    if isinstance(op, _LINEAR):
        return sum(summands) == 1
    if isinstance(op, _SUMS):
        return all(map(max, summands, zeros))
    if isinstance(op, scalars.TrueDiv):
        return summands[0] and not summands[1]
    if isinstance(op, scalars.Switch):
        return not summands[0] and all(map(max, summands[1:], zeros[1:]))
    return False


def _rowwise(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Apply an op to the worker's rows; an unsplit input is either used for all rows or cut to the worker's rows."""
    layout = common_layout(node, inputs)
    local = [value if isinstance(value, Sharded | Own) else spreader.whole(value, node) for value in inputs]
    for i, value in enumerate(local):
        if isinstance(value, Sharded) or value.var.type.broadcastable[layout.axis]:
            continue
        # The input has a row for each row of the whole batch.
        local[i] = Replicated(spreader.own_rows(value.var, layout, node))
    return [with_layout_of(layout, out) for out in remade(node, local)]


def _of_lengths(spreader: Spreader, node: Apply, inputs: list[Value]) -> Value:
    """Apply an op to lengths: integer results are lengths, and float results are computed for the whole batch."""
    op, out = _scalar_op(node), node.outputs[0]
    whole = remade(node, spreader.wholes(inputs, node))[0]
    if out.type.dtype.startswith("float"):
        return Replicated(whole)
    lengths = [value for value in inputs if isinstance(value, Length)]
    linear = isinstance(op, _LINEAR) and len(lengths) == 1 and lengths[0].linear
    unit = lengths[0].unit and len(inputs) == 1
    return Length(remade(node, inputs)[0] if linear else whole, whole, unit and linear, linear)


def _elementwise_vector(spreader: Spreader, node: Apply, inputs: list[Value]) -> Value:
    """Apply an op to vectors of lengths, element by element."""
    count = next(len(value.entries) for value in inputs if isinstance(value, Vector))

    def entry(value: Value, index: int) -> Value:
        if isinstance(value, Vector):
            return value.entries[index]
        if not isinstance(value, Replicated):
            raise NotSplittable(node, "it combines the shape of an array with the values of one")
        return Replicated(value.array[0 if value.var.type.broadcastable[0] else index])

    scalar_op = ops.Elemwise(_scalar_op(node))
    entries = tuple(spreader.apply(scalar_op, *(entry(value, i) for value in inputs)) for i in range(count))
    return vector_of(entries)


def vector_of(entries: Sequence[Value]) -> Value:
    """Return a vector of numbers, with the layout `Vector` if one of them is a length."""
    var = tensor.stack([entry.var for entry in entries])
    return Vector(var, tuple(entries)) if has(entries, Length) else Replicated(var)


@rule(ops.CAReduce)
def reduce(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Reduce along axes. If the reduction is a sum over the batch, the result is `Partial`."""
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
    """Return the layout of an array after some axes are removed."""
    return replace(value, var=var, axis=value.axis - sum(axis < value.axis for axis in axes))


@rule(ops.MaxAndArgmax, ops.Argmax)
def argmax(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Find the index of the largest element in each row."""
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
    """Multiply matrices. A product that sums over the examples is `Partial`."""
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
    """Return a product that sums over `left_axis` and `right_axis`, with `pairs` leading batch axes."""
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

"""The rules for ops that read, compute or change shapes: lengths, reshaping, transposing, filling and joining."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optdb.distributed.errors import NotSplittable
from optdb.distributed.sharding.layouts import (
    Length,
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
from optdb.distributed.sharding.spreading import Spreader, is_zero, remade, rule
from optdb.host.api import ops
from optdb.host.api.graph import Apply, Constant, Variable
from optdb.host.api.linking import DeepCopyOp
from optdb.host.theano.functions.originals import tensor


def _is_constant(var: Variable, *numbers: int) -> bool:
    return isinstance(var, Constant) and var.type.ndim == 0 and var.data in numbers


@rule(ops.Shape)
def shape(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Return the lengths of all axes."""
    (value,) = inputs
    if isinstance(value, Sharded):
        own = remade(node, inputs)[0]
        return [Vector(own, tuple(spreader.length_along(value, axis) for axis in range(value.var.type.ndim)))]
    if isinstance(value, RowNumbers):
        return [Vector(remade(node, inputs)[0], (Length(spreader.own_length, spreader.length, True),))]
    return [Replicated(remade(node, inputs)[0])]


@rule(ops.Shape_i)
def length(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Return one length."""
    (value,) = inputs
    assert isinstance(node.op, ops.Shape_i)
    if isinstance(value, Sharded):
        return [spreader.length_along(value, node.op.i)]
    return [Replicated(remade(node, inputs)[0])]


@rule(ops.MakeVector)
def make_vector(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Return a vector that contains lengths, or a vector of numbers that are equal on all workers."""
    if has(inputs, Length):
        return [Vector(remade(node, inputs)[0], tuple(inputs))]
    return spreader.replicated(node, inputs)


@rule(ops.TensorFromScalar, ops.ScalarFromTensor)
def scalar_conversion(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Convert a scalar to a tensor, or a tensor to a scalar; the layout does not change."""
    (value,) = inputs
    out = remade(node, inputs)[0]
    if isinstance(value, Length):
        return [replace(value, var=out, whole=remade(node, [Replicated(value.whole)])[0])]
    return [with_layout_of(value, out)]


def _entries(value: Value, count: int, node: Apply) -> list[Value]:
    """Return the elements of an integer vector."""
    if isinstance(value, Vector):
        return list(value.entries)
    if not isinstance(value, Replicated):
        raise NotSplittable(node, "a shape depends on the values of the batch, not only on its length")
    if isinstance(value.var, Constant):
        return [Replicated(tensor.constant(int(number), dtype="int64")) for number in value.var.data]
    return [Replicated(value.array[i]) for i in range(count)]


def _static_length(var: Variable) -> int | None:
    """Return the length of a vector; None if it is unknown."""
    if isinstance(var, Constant):
        return len(var.data)
    if var.type.broadcastable[0]:
        return 1
    node = var.owner
    if node is None:
        return None
    if isinstance(node.op, ops.Shape):
        return int(node.inputs[0].type.ndim)
    if isinstance(node.op, ops.MakeVector):
        return len(node.inputs)
    if isinstance(node.op, ops.Subtensor):
        whole = _static_length(node.inputs[0])
        (item,) = ops.get_idx_list(node.inputs, node.op.idx_list)
        bounds = [getattr(bound, "data", bound) for bound in (item.start, item.stop, item.step)]
        if whole is not None and all(bound is None or not isinstance(bound, Variable) for bound in bounds):
            return len(range(whole)[slice(*bounds)])
    return None


def _checked_shape(node: Apply, shape_var: Variable, own: Variable, expected: Variable) -> Variable:
    """Return `shape_var` with a run-time check that `own` equals `expected`, because otherwise rows would be mixed."""
    check = ops.Assert(f"{node.op} mixes rows of different examples; pass average_every= or gradients= to DataParallel")
    return check(shape_var, tensor.eq(own, expected))


def _product(lengths: Sequence[Variable]) -> Variable:
    product = tensor.constant(1, dtype="int64")
    for var in lengths:
        product = product * var
    return product


@rule(ops.Reshape)
def reshape(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Reshape an array, and find the axis of the new shape along which it is split."""
    value, new = inputs
    if isinstance(value, Partial | Replicated) and isinstance(new, Replicated):
        return [with_layout_of(value, remade(node, inputs)[0])]
    count = node.outputs[0].type.ndim
    entries = _entries(new, count, node)
    axis, unit = _axis_after(node, entries)
    if not isinstance(value, Sharded):
        out = remade(node, spreader.wholes(inputs, node))[0]
        layout = Sharded(out, axis, unit)
        return [Sharded(spreader.own_rows(out, layout, node), axis)]
    old_lengths = [value.array.shape[i] for i in range(value.var.type.ndim)]
    before, old_after = old_lengths[: value.axis], old_lengths[value.axis + 1 :]
    lead, after = ([entry.var for entry in entries[:axis]], [entry.var for entry in entries[axis + 1 :]])
    is_length = isinstance(entries[axis], Length)
    if any(_is_constant(var, -1) for var in (*lead, *after)):
        raise NotSplittable(node, "the length of the rows is unknown; replace -1 by it")
    checks: list[tuple[Variable, Variable]] = []
    if not value.interleaved and axis == value.axis:
        # Rows stay in order if the product of the lengths before the split axis is unchanged and no row mixes examples.
        if axis:
            checks.append((_product(lead), _product(before)))
        if not is_length:
            checks.append((tensor.mod(_product(old_after), _product(after)), tensor.constant(0)))
        return [Sharded(_reshaped(node, value, new, checks), axis, unit)]
    if not value.interleaved and (axis > value.axis or not value.unit):
        raise NotSplittable(node, f"the batch is split along axis {value.axis}, which the reshape does not keep")
    # Rows stay intact if the product of the lengths after the split axis is unchanged.
    checks.append((_product(after), _product(old_after)))
    if value.interleaved and not unit and is_length:
        checks.append((entries[axis].var, old_lengths[value.axis]))
    elif not is_length and axis:
        if value.interleaved:
            raise NotSplittable(node, "the axis of the batch in the new shape is ambiguous; replace -1 by the length")
        checks.append((tensor.mod(_product(before), _product(lead)), tensor.constant(0)))
    return [Sharded(_reshaped(node, value, new, checks), axis, unit, interleaved=not unit)]


def _reshaped(node: Apply, value: Value, new: Value, checks: Sequence[tuple[Variable, Variable]]) -> Variable:
    """Return a reshaped array, with run-time checks that the numbers in each pair of `checks` are equal."""
    shape_var = new.var
    for own, expected in checks:
        shape_var = _checked_shape(node, shape_var, own, expected)
    return remade(node, [value, Replicated(shape_var)])[0]


def _axis_after(node: Apply, entries: Sequence[Value]) -> tuple[int, bool]:
    """Return the split axis of a new shape, and whether that axis has one row for each example."""
    lengths = [(i, entry) for i, entry in enumerate(entries) if isinstance(entry, Length)]
    unknown = [i for i, entry in enumerate(entries) if _is_constant(entry.var, -1)]
    if len(lengths) == 1 and lengths[0][1].linear:
        axis, length = lengths[0]
        return axis, length.unit
    if lengths or len(unknown) != 1:
        raise NotSplittable(node, "the new shape must have exactly one axis whose length is the batch's")
    return unknown[0], False


@rule(ops.Alloc, ops.AllocEmpty)
def allocate(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Fill an array with a value; the array is split if its shape depends on the batch."""
    filled = isinstance(node.op, ops.Alloc)
    values, lengths = (inputs[:1], inputs[1:]) if filled else ([], inputs)
    of_batch = [(i, entry) for i, entry in enumerate(lengths) if isinstance(entry, Length)]
    if len(of_batch) > 1 or not all(entry.linear for _, entry in of_batch):
        reason = "the shape must have at most one length that depends on the batch, and that length must be a multiple"
        raise NotSplittable(node, f"{reason} of the batch's")
    out = remade(node, inputs)[0]
    if not of_batch:
        if values and not isinstance(values[0], Replicated | Partial):
            raise NotSplittable(node, f"{values[0].var} is split, but no length of the shape depends on the batch")
        return [with_layout_of(values[0], out) if values else Replicated(out, zero=True)]
    axis, unit = of_batch[0][0], of_batch[0][1].unit
    if not values or values[0].var.type.ndim == 0:
        local = [spreader.whole(value, node) for value in values]
        return [Sharded(remade(node, [*local, *lengths])[0], axis, unit)]
    value = values[0]
    aligned = axis - (node.outputs[0].type.ndim - value.var.type.ndim)
    if isinstance(value, Sharded):
        if value.axis != aligned:
            raise NotSplittable(node, f"{value.var} and the result are split along different axes")
        return [replace(value, var=out, axis=axis)]
    value = spreader.whole(value, node)
    if aligned >= 0 and not value.var.type.broadcastable[aligned]:
        raise NotSplittable(node, f"{value.var} has the rows of the whole batch, but a worker has a part of the batch")
    return [Sharded(remade(node, [value, *lengths])[0], axis, unit)]


@rule(ops.DimShuffle)
def dimshuffle(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Permute, drop or add axes, and find the new position of the split axis."""
    (value,) = inputs
    assert isinstance(node.op, ops.DimShuffle)
    order = list(node.op.new_order)
    if isinstance(value, Sharded):
        return [replace(value, var=remade(node, inputs)[0], axis=order.index(value.axis))]
    if isinstance(value, Length):
        whole = remade(node, [Replicated(value.whole)])[0]
        return [Replicated(whole) if order else replace(value, var=remade(node, inputs)[0], whole=whole)]
    if isinstance(value, RowNumbers) and order != [0]:
        raise NotSplittable(node, "it computes with row numbers, which differ between workers")
    if isinstance(value, Vector):
        return spreader.replicated(node, inputs)
    return [with_layout_of(value, remade(node, inputs)[0])]


@rule(ops.Rebroadcast, ops.Assert, ops.Print, DeepCopyOp, ops.CpuContiguous)
def pass_through(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Keep the layout of an array, which is the first input; each worker needs the whole values of all other inputs."""
    value = inputs[0]
    if isinstance(value, Length | Vector):
        return spreader.replicated(node, inputs)
    others = spreader.wholes(inputs[1:], node)
    return [with_layout_of(value, remade(node, [value, *others])[0])]


@rule(ops.SpecifyShape)
def specify_shape(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Specify the lengths of the worker's part of an array; the array's layout does not change."""
    value, lengths = inputs
    if isinstance(value, Sharded) and not isinstance(lengths, Vector):
        raise NotSplittable(node, "it fixes the length of the batch, but a worker has a part of the batch")
    return [with_layout_of(value, remade(node, inputs)[0])]


@rule(ops.ARange)
def row_numbers(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Return the row numbers of a worker's part; ranges that do not depend on the batch are equal on all workers."""
    start, stop, step = inputs
    if not isinstance(stop, Length):
        return spreader.replicated(node, inputs)
    if stop.unit and is_zero(start.var) and _is_constant(step.var, 1):
        return [RowNumbers(remade(node, inputs)[0])]
    raise NotSplittable(node, "a range that depends on the length of the batch must be arange(length)")


@rule(ops.Join)
def join(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Apply `Join`, which must not join arrays along the split axis."""
    axis, *arrays = inputs
    if all(isinstance(value, Replicated) for value in inputs):
        return [Replicated(out, all(map(has_zeros, arrays))) for out in remade(node, inputs)]
    if node.outputs[0].type.ndim == 1 and has(arrays, Vector):
        parts: list[Value] = []
        for value in arrays:
            count = _static_length(value.var)
            if count is None:
                raise NotSplittable(node, "it joins lengths with a vector whose length is unknown")
            parts += _entries(value, count, node)
        return [Vector(remade(node, inputs)[0], tuple(parts))]
    if all(isinstance(value, Partial) or has_zeros(value) for value in arrays):
        return [Partial(remade(node, inputs)[0])]
    if all(isinstance(value, Sharded) for value in arrays) and isinstance(axis.var, Constant):
        layout = common_layout(node, arrays)
        if int(axis.var.data) % layout.var.type.ndim != layout.axis:
            return [with_layout_of(layout, remade(node, inputs)[0])]
    if not has(arrays, Sharded):
        return spreader.replicated(node, inputs)
    raise NotSplittable(
        node, "it joins rows of the batch with an array that is not split, or along the axis of the batch"
    )


@rule(ops.Split)
def split(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Apply `Split`, which must not divide the split axis."""
    value, axis, sizes = inputs
    if isinstance(value, Sharded):
        if not isinstance(axis.var, Constant) or int(axis.var.data) % value.var.type.ndim == value.axis:
            raise NotSplittable(node, "it splits the batch itself")
        return [with_layout_of(value, out) for out in remade(node, [value, axis, spreader.whole(sizes, node)])]
    if not isinstance(value, Replicated | Partial):
        value = spreader.whole(value, node)
    return [with_layout_of(value, out) for out in remade(node, [value, *spreader.wholes([axis, sizes], node)])]

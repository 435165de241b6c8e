"""The rules: for each op, the layouts of its results, given those of its inputs.

Each rule has the same invariant: the workers' results, combined according to the layout, equal the result of one device
for the whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
)
from optdb.distributed.sharding.spreading import Spreader, is_zero, remade, rule
from optdb.host.api import ops, scalars
from optdb.host.api.graph import Apply, Constant, Variable
from optdb.host.api.linking import DeepCopyOp
from optdb.host.theano.functions.originals import tensor


def _has(values: Sequence[Value], layout: type) -> bool:
    return any(isinstance(value, layout) for value in values)


def _has_zeros(value: Value) -> bool:
    return isinstance(value, Replicated) and value.zero


def _is_constant(var: Variable, *numbers: int) -> bool:
    return isinstance(var, Constant) and var.type.ndim == 0 and var.data in numbers


# Elementwise

#: Linear in one input if the others are the same on all workers.
_LINEAR = (scalars.Identity, scalars.Neg, scalars.Mul, scalars.Cast)
#: Linear in all inputs together.
_SUMS = (scalars.Add, scalars.Sub)


@rule(ops.Elemwise)
def elementwise(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Compute element by element: rows from rows; sums and multiples of summands are summands."""
    op = _scalar_op(node)
    if _has(inputs, Vector):
        return [_elementwise_vector(spreader, node, inputs)]
    if (
        isinstance(op, scalars.Second)
        and all(node.inputs[0].type.broadcastable)
        and node.outputs[0].type == inputs[1].var.type
    ):
        return [inputs[1]]  # the first input does not affect the shape
    if _has(inputs, RowNumbers):
        if len(inputs) == 1 and isinstance(op, scalars.Cast | scalars.Identity):
            return [RowNumbers(remade(node, inputs)[0])]
        raise NotSplittable(node, "it computes with the numbers of rows, which are other ones on each worker")
    if _has(inputs, Sharded):
        return _rowwise(spreader, node, inputs)
    if (
        isinstance(op, scalars.Second)
        and isinstance(inputs[0], Partial | Replicated)
        and not isinstance(inputs[1], Length)
    ):
        return [_like(inputs[1], remade(node, inputs)[0])]
    if _has(inputs, Partial):
        if _is_linear(op, node, inputs):
            return [Partial(remade(node, inputs)[0])]
        inputs = [spreader.whole(value, node) if isinstance(value, Partial) else value for value in inputs]
        return spreader.follow(node, inputs)
    if _has(inputs, Own):
        others = [value if isinstance(value, Own) else spreader.whole(value, node) for value in inputs]
        return list(map(Own, remade(node, others)))
    if _has(inputs, Length):
        return [_of_lengths(spreader, node, inputs)]
    keeps_zero = isinstance(op, (*_LINEAR, *_SUMS)) and all(map(_has_zeros, inputs))
    return [Replicated(out, keeps_zero) for out in remade(node, inputs)]


def _scalar_op(node: Apply) -> scalars.ScalarOp:
    assert isinstance(node.op, ops.Elemwise)
    return node.op.scalar_op


def _like(value: Value, var: Variable) -> Value:
    """Return another variable's value, with the layout of a given value."""
    if isinstance(value, Replicated):
        return Replicated(var, value.zero)
    if isinstance(value, Sharded):
        return Sharded(var, value.axis, value.unit, value.interleaved)
    return type(value)(var)


def _is_linear(op: object, node: Apply, inputs: list[Value]) -> bool:
    """Tell whether an elementwise op computes a summand from summands."""
    summands = [isinstance(value, Partial) for value in inputs]
    zeros = list(map(_has_zeros, inputs))
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
    """Return the results of an op on rows; an unsplit input is shared by all rows, or cut to the worker's rows."""
    layout = _one_layout(node, inputs)
    local = [value if isinstance(value, Sharded | Own) else spreader.whole(value, node) for value in inputs]
    for i, value in enumerate(local):
        if isinstance(value, Sharded) or value.var.type.broadcastable[layout.axis]:
            continue
        # It has one row for each row of the whole batch.
        local[i] = Replicated(spreader.own_rows(value.var, layout, node))
    return [_like(layout, out) for out in remade(node, local)]


def _one_layout(node: Apply, values: Sequence[Value]) -> Sharded:
    """Return the layout of the split arrays among some values; their rows must belong to the same examples."""
    split = [value for value in values if isinstance(value, Sharded)]
    first = split[0]
    for value in split:
        if value.axis != first.axis or value.interleaved != first.interleaved:
            raise NotSplittable(node, f"rows of {first.var} meet rows of {value.var} that belong to other examples")
    return min(split, key=lambda value: value.unit)


def _of_lengths(spreader: Spreader, node: Apply, inputs: list[Value]) -> Value:
    """Compute with lengths: integers remain lengths, floats are computed for the whole batch."""
    op, out = _scalar_op(node), node.outputs[0]
    whole = remade(node, spreader.wholes(inputs, node))[0]
    if out.type.dtype.startswith("float"):
        return Replicated(whole)
    lengths = [value for value in inputs if isinstance(value, Length)]
    linear = isinstance(op, _LINEAR) and len(lengths) == 1 and lengths[0].linear
    unit = lengths[0].unit and len(inputs) == 1
    return Length(remade(node, inputs)[0] if linear else whole, whole, unit and linear, linear)


def _elementwise_vector(spreader: Spreader, node: Apply, inputs: list[Value]) -> Value:
    """Compute with vectors of lengths, element by element."""
    count = next(len(value.entries) for value in inputs if isinstance(value, Vector))

    def entry(value: Value, index: int) -> Value:
        if isinstance(value, Vector):
            return value.entries[index]
        if not isinstance(value, Replicated):
            raise NotSplittable(node, "it computes with the shape of an array and with the array's values")
        return Replicated(value.array[0 if value.var.type.broadcastable[0] else index])

    scalar_op = ops.Elemwise(_scalar_op(node))
    entries = tuple(spreader.apply(scalar_op, *(entry(value, i) for value in inputs)) for i in range(count))
    return _vector(entries)


def _vector(entries: Sequence[Value]) -> Value:
    var = tensor.stack([entry.var for entry in entries])
    return Vector(var, tuple(entries)) if _has(entries, Length) else Replicated(var)


# Shapes


@rule(ops.Shape)
def shape(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Return lengths. The length of a split axis has two values, one for the part and one for the whole batch."""
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
    """Return a vector of lengths, or of other numbers that all workers have."""
    if _has(inputs, Length):
        return [Vector(remade(node, inputs)[0], tuple(inputs))]
    if all(isinstance(value, Replicated) for value in inputs):
        return [Replicated(remade(node, inputs)[0])]
    return [Replicated(remade(node, spreader.wholes(inputs, node))[0])]


@rule(ops.TensorFromScalar, ops.ScalarFromTensor)
def scalar_conversion(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Keep the layout of a number."""
    (value,) = inputs
    out = remade(node, inputs)[0]
    if isinstance(value, Length):
        return [Length(out, remade(node, [Replicated(value.whole)])[0], value.unit, value.linear)]
    return [_like(value, out)]


def _entries(value: Value, count: int, node: Apply) -> list[Value]:
    """Return the elements of an integer vector."""
    if isinstance(value, Vector):
        return list(value.entries)
    if not isinstance(value, Replicated):
        raise NotSplittable(node, "a shape depends on values of the batch")
    if isinstance(value.var, Constant):
        return [Replicated(tensor.constant(int(number), dtype="int64")) for number in value.var.data]
    return [Replicated(value.array[i]) for i in range(count)]


def _static_length(var: Variable) -> int | None:
    """Return the length of a vector; None if the graph does not determine it."""
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
    """Return a shape that each call checks: two numbers that determine the order of rows must be equal."""
    check = ops.Assert(f"{node.op} mixes rows of different examples; give DataParallel average_every=, or gradients=")
    return check(shape_var, tensor.eq(own, expected))


def _product(lengths: Sequence[Variable]) -> Variable:
    product = tensor.constant(1, dtype="int64")
    for var in lengths:
        product = product * var
    return product


@rule(ops.Reshape)
def reshape(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Find the split axis in the new shape."""
    value, new = inputs
    if isinstance(value, Partial | Replicated) and isinstance(new, Replicated):
        return [_like(value, remade(node, inputs)[0])]
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
        raise NotSplittable(node, "it is not known how long the rows are: write their length in place of -1")
    checks: list[tuple[Variable, Variable]] = []
    if not value.interleaved and axis == value.axis:
        # Rows stay in order if the axes before the split axis keep their product, and no row mixes two examples.
        if axis:
            checks.append((_product(lead), _product(before)))
        if not is_length:
            checks.append((tensor.mod(_product(old_after), _product(after)), tensor.constant(0)))
        return [Sharded(_reshaped(node, value, new, checks), axis, unit)]
    if not value.interleaved and (axis > value.axis or not value.unit):
        raise NotSplittable(node, f"axis {value.axis}, along which the batch is split, is not an axis of the result")
    # Rows stay whole if the axes after the split axis keep their product.
    checks.append((_product(after), _product(old_after)))
    if value.interleaved and not unit and is_length:
        checks.append((entries[axis].var, old_lengths[value.axis]))
    elif not is_length and axis:
        if value.interleaved:
            raise NotSplittable(node, "it is not known which axis has the rows: write lengths in place of -1")
        checks.append((tensor.mod(_product(before), _product(lead)), tensor.constant(0)))
    return [Sharded(_reshaped(node, value, new, checks), axis, unit, interleaved=not unit)]


def _reshaped(node: Apply, value: Value, new: Value, checks: Sequence[tuple[Variable, Variable]]) -> Variable:
    """Return an array in another shape; each call checks that pairs of numbers are equal."""
    shape_var = new.var
    for own, expected in checks:
        shape_var = _checked_shape(node, shape_var, own, expected)
    return remade(node, [value, Replicated(shape_var)])[0]


def _axis_after(node: Apply, entries: Sequence[Value]) -> tuple[int, bool]:
    """Return the split axis of a new shape, and whether it has one row for each example."""
    lengths = [(i, entry) for i, entry in enumerate(entries) if isinstance(entry, Length)]
    unknown = [i for i, entry in enumerate(entries) if _is_constant(entry.var, -1)]
    if len(lengths) == 1 and lengths[0][1].linear:
        axis, length = lengths[0]
        return axis, length.unit
    if lengths or len(unknown) != 1:
        raise NotSplittable(node, "the length of the batch is in no axis of the new shape, or in several")
    return unknown[0], False


@rule(ops.Alloc, ops.AllocEmpty)
def allocate(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Fill an array with a value; it is split if a length of the shape depends on the batch."""
    filled = isinstance(node.op, ops.Alloc)
    values, lengths = (inputs[:1], inputs[1:]) if filled else ([], inputs)
    of_batch = [(i, entry) for i, entry in enumerate(lengths) if isinstance(entry, Length)]
    if len(of_batch) > 1 or not all(entry.linear for _, entry in of_batch):
        raise NotSplittable(node, "several lengths of the shape depend on the batch, or one in another way than linear")
    out = remade(node, inputs)[0]
    if not of_batch:
        if values and not isinstance(values[0], Replicated | Partial):
            raise NotSplittable(node, f"{values[0].var} is split, and the shape does not say so")
        return [_like(values[0], out) if values else Replicated(out, zero=True)]
    axis, unit = of_batch[0][0], of_batch[0][1].unit
    if not values or values[0].var.type.ndim == 0:
        local = [spreader.whole(value, node) for value in values]
        return [Sharded(remade(node, [*local, *lengths])[0], axis, unit)]
    value = values[0]
    aligned = axis - (node.outputs[0].type.ndim - value.var.type.ndim)
    if isinstance(value, Sharded):
        if value.axis != aligned:
            raise NotSplittable(node, f"{value.var} is split along another axis than the result")
        return [Sharded(out, axis, value.unit, value.interleaved)]
    value = spreader.whole(value, node)
    if aligned >= 0 and not value.var.type.broadcastable[aligned]:
        raise NotSplittable(node, f"{value.var} has as many rows as the whole batch")
    return [Sharded(remade(node, [value, *lengths])[0], axis, unit)]


@rule(ops.DimShuffle)
def dimshuffle(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Find the new position of the split axis."""
    (value,) = inputs
    assert isinstance(node.op, ops.DimShuffle)
    order = list(node.op.new_order)
    if isinstance(value, Sharded):
        return [Sharded(remade(node, inputs)[0], order.index(value.axis), value.unit, value.interleaved)]
    if isinstance(value, Length):
        whole = remade(node, [Replicated(value.whole)])[0]
        return [Length(remade(node, inputs)[0], whole, value.unit, value.linear) if not order else Replicated(whole)]
    if isinstance(value, RowNumbers) and order != [0]:
        raise NotSplittable(node, "it computes with the numbers of rows, which are other ones on each worker")
    if isinstance(value, Vector):
        return [Replicated(remade(node, spreader.wholes(inputs, node))[0])]
    return [_like(value, remade(node, inputs)[0])]


@rule(ops.Rebroadcast, ops.Assert, ops.Print, DeepCopyOp, ops.CpuContiguous)
def pass_through(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Keep the layout of the first input; conditions are evaluated on whole values."""
    value = inputs[0]
    if isinstance(value, Length | Vector):
        return [Replicated(remade(node, spreader.wholes(inputs, node))[0])]
    others = spreader.wholes(inputs[1:], node)
    return [_like(value, remade(node, [value, *others])[0])]


@rule(ops.SpecifyShape)
def specify_shape(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Keep the layout; the lengths are those of the part."""
    value, lengths = inputs
    if isinstance(value, Sharded) and not isinstance(lengths, Vector):
        raise NotSplittable(node, "it fixes the length of the batch, and workers have parts of it")
    return [_like(value, remade(node, inputs)[0])]


@rule(ops.ARange)
def row_numbers(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Number the rows of the part, as an index of its rows; other ranges are the same on all workers."""
    start, stop, step = inputs
    if not isinstance(stop, Length):
        return [Replicated(remade(node, spreader.wholes(inputs, node))[0])]
    if stop.unit and is_zero(start.var) and _is_constant(step.var, 1):
        return [RowNumbers(remade(node, inputs)[0])]
    raise NotSplittable(node, "a range that depends on the length of the batch has to be arange(length)")


@rule(ops.Join)
def join(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Join arrays along an axis that is not split."""
    axis, *arrays = inputs
    if all(isinstance(value, Replicated) for value in inputs):
        return [Replicated(out, all(map(_has_zeros, arrays))) for out in remade(node, inputs)]
    if node.outputs[0].type.ndim == 1 and _has(arrays, Vector):
        parts: list[Value] = []
        for value in arrays:
            count = _static_length(value.var)
            if count is None:
                raise NotSplittable(node, "it joins lengths with a vector of numbers")
            parts += _entries(value, count, node)
        return [Vector(remade(node, inputs)[0], tuple(parts))]
    if all(isinstance(value, Partial) or _has_zeros(value) for value in arrays):
        return [Partial(remade(node, inputs)[0])]
    if all(isinstance(value, Sharded) for value in arrays) and isinstance(axis.var, Constant):
        layout = _one_layout(node, arrays)
        if int(axis.var.data) % layout.var.type.ndim != layout.axis:
            return [_like(layout, remade(node, inputs)[0])]
    if not _has(arrays, Sharded):
        return [Replicated(remade(node, spreader.wholes(inputs, node))[0])]
    raise NotSplittable(node, "it joins rows of the batch with something else")


@rule(ops.Split)
def split(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Split arrays along an axis that is not split."""
    value, axis, sizes = inputs
    if isinstance(value, Sharded):
        if not isinstance(axis.var, Constant) or int(axis.var.data) % value.var.type.ndim == value.axis:
            raise NotSplittable(node, "it divides the batch")
        return [_like(value, out) for out in remade(node, [value, axis, spreader.whole(sizes, node)])]
    if not isinstance(value, Replicated | Partial):
        value = spreader.whole(value, node)
    return [_like(value, out) for out in remade(node, [value, *spreader.wholes([axis, sizes], node)])]


# Parts of arrays


def _kept_axis(node: Apply, value: Sharded, index: Sequence[object]) -> int:
    """Return the split axis of a part of an array; the part must have all rows."""
    chosen = index[value.axis] if value.axis < len(index) else slice(None)
    if not isinstance(chosen, slice) or not _is_full(chosen):
        raise NotSplittable(node, "it chooses rows of the batch by number")
    return value.axis - sum(not isinstance(item, slice) for item in index[: value.axis])


def _is_full(chosen: slice) -> bool:
    def is_one_of(item: object, *numbers: int) -> bool:
        return item is None or item in numbers or (isinstance(item, Constant) and item.data in numbers)

    return is_one_of(chosen.start, 0) and chosen.stop is None and is_one_of(chosen.step, 1)


@rule(ops.Subtensor)
def subtensor(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Take a part of each row; of a vector of lengths, take elements."""
    value, *numbers = inputs
    assert isinstance(node.op, ops.Subtensor)
    index = ops.get_idx_list(node.inputs, node.op.idx_list)
    if isinstance(value, Vector):
        return [_of_vector(spreader, node, value, index)]
    numbers = spreader.wholes(numbers, node)
    if isinstance(value, Sharded):
        axis = _kept_axis(node, value, index)
        return [Sharded(remade(node, [value, *numbers])[0], axis, value.unit, value.interleaved)]
    if not isinstance(value, Replicated | Partial):
        raise NotSplittable(node, f"it takes a part of {value.var}")
    return [_like(value, remade(node, [value, *numbers])[0])]


def _of_vector(spreader: Spreader, node: Apply, value: Vector, index: Sequence[Any]) -> Value:
    (item,) = index
    bounds = [item.start, item.stop, item.step] if isinstance(item, slice) else [item]
    if not all(bound is None or isinstance(bound, int | Constant) for bound in bounds):
        return Replicated(remade(node, spreader.wholes([value, *map(spreader.value, node.inputs[1:])], node))[0])
    numbers = [int(bound.data) if isinstance(bound, Constant) else bound for bound in bounds]
    if isinstance(item, slice):
        return _vector(value.entries[slice(*numbers)])
    entry = value.entries[numbers[0]]
    out = node.outputs[0].type.filter_variable(entry.var)
    return Length(out, entry.whole, entry.unit, entry.linear) if isinstance(entry, Length) else Replicated(out)


@rule(ops.IncSubtensor)
def inc_subtensor(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Set or increment a part of each row."""
    value, new, *numbers = inputs
    numbers = spreader.wholes(numbers, node)
    assert isinstance(node.op, ops.IncSubtensor)
    index = ops.get_idx_list([node.inputs[0], *node.inputs[2:]], node.op.idx_list)
    summable = [isinstance(each, Partial) or _has_zeros(each) for each in (value, new)]
    if _has([value, new], Partial) and all(summable):
        return [Partial(remade(node, [value, new, *numbers])[0])]
    if isinstance(value, Sharded):
        axis = _kept_axis(node, value, index)
        kept = value.var.type.ndim - sum(not isinstance(item, slice) for item in index)
        aligned = axis - (kept - new.var.type.ndim)
        if not isinstance(new, Sharded):
            new = spreader.whole(new, node)
            fits = aligned < 0 or new.var.type.broadcastable[aligned]
        else:
            fits = new.axis == aligned and new.interleaved == value.interleaved
        if fits:
            return [_like(value, remade(node, [value, new, *numbers])[0])]
    elif not _has([value, new], Sharded):
        return list(map(Replicated, remade(node, [*spreader.wholes([value, new], node), *numbers])))
    raise NotSplittable(node, f"{new.var} is split in another way than {value.var}")


@rule(ops.AdvancedSubtensor1)
def rows_by_number(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Look up rows of a table for each example."""
    table, numbers = inputs
    if isinstance(numbers, Sharded) and not isinstance(table, Sharded):
        table = spreader.whole(table, node)
        return [_like(numbers, remade(node, [table, numbers])[0])]
    if isinstance(table, Sharded) and table.axis and not isinstance(numbers, Sharded):
        return [_like(table, remade(node, [table, spreader.whole(numbers, node)])[0])]
    if isinstance(table, Partial | Replicated) and not isinstance(numbers, Sharded):
        return [_like(table, remade(node, [table, spreader.whole(numbers, node)])[0])]
    raise NotSplittable(node, "it chooses rows of the batch by number")


@rule(ops.AdvancedIncSubtensor1)
def increment_rows(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Add each example's contribution to the rows of a table: the result is a summand."""
    table, new, numbers = inputs
    assert isinstance(node.op, ops.AdvancedIncSubtensor1)
    if isinstance(numbers, Sharded) and isinstance(table, Partial | Replicated) and not node.op.set_instead_of_inc:
        if isinstance(new, Sharded) and new.axis != 0:
            raise NotSplittable(node, f"{new.var} is split in another way than {numbers.var}")
        if isinstance(new, Sharded):
            _one_layout(node, [new, numbers])
        else:
            new = spreader.whole(new, node)
            if not new.var.type.broadcastable[0]:
                raise NotSplittable(node, f"{new.var} has as many rows as the whole batch")
        if isinstance(table, Partial) or table.zero:
            return [Partial(remade(node, [table, new, numbers])[0])]
        added = remade(node, [Replicated(tensor.zeros_like(table.var)), new, numbers])[0]
        return [Replicated(table.array + spreader.whole(Partial(added), node).var)]
    if not _has(inputs, Sharded):
        return list(map(Replicated, remade(node, spreader.wholes(inputs, node))))
    raise NotSplittable(node, "it changes rows of the batch by number")


def _axes_of(index: Value) -> int | None:
    """Return the number of axes of an index; None for slices and new axes."""
    return getattr(index.var.type, "ndim", None)


def _indexes_rows(node: Apply, layout: Sharded, index: Sequence[Value]) -> None:
    """Raise an error unless the indexes select, in each row, elements of that row."""
    all_vectors = all(_axes_of(value) == 1 for value in index)
    if layout.axis or layout.interleaved or not all_vectors or not isinstance(index[0], RowNumbers):
        raise NotSplittable(node, "it chooses rows of the batch by number")


@rule(ops.AdvancedSubtensor)
def elements_by_number(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Select elements: of each row (``x[arange(n), classes]``), or of a table for each example."""
    value, *index = inputs
    if not all(isinstance(each, Sharded | RowNumbers | Replicated) and _axes_of(each) in (0, 1) for each in index):
        raise NotSplittable(node, "it chooses elements by slices and arrays")
    local = [each for each in index if not isinstance(each, Replicated)]
    if isinstance(value, Sharded):
        _indexes_rows(node, value, index)
    elif not local or _has(local, RowNumbers):
        raise NotSplittable(node, "it chooses elements by the numbers of rows")
    else:
        value = spreader.whole(value, node)
    for each in local:
        if isinstance(each, Sharded) and (each.axis or each.interleaved):
            raise NotSplittable(node, f"{each.var} is split in another way than the batch")
    if any(
        isinstance(each, Replicated) and each.var.type.ndim and not each.var.type.broadcastable[0] for each in index
    ):
        raise NotSplittable(node, "an index has as many elements as the whole batch")
    return [Sharded(remade(node, [value, *index])[0], 0)]


@rule(ops.AdvancedIncSubtensor)
def increment_elements(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Change elements of each row."""
    value, new, *index = inputs
    if not isinstance(value, Sharded):
        raise NotSplittable(node, "it changes elements by number")
    _indexes_rows(node, value, index)
    if isinstance(new, Sharded):
        _one_layout(node, [value, new])
    else:
        new = spreader.whole(new, node)
        if new.var.type.ndim and not new.var.type.broadcastable[0]:
            raise NotSplittable(node, f"{new.var} has as many rows as the whole batch")
    return [_like(value, remade(node, [value, new, *index])[0])]


# Sums and products


@rule(ops.CAReduce)
def reduce(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Reduce along axes; a sum over the batch is a summand."""
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
        raise NotSplittable(node, "it reduces over the batch, and not by a sum")
    if isinstance(value, Partial) and is_sum:
        return list(map(Partial, remade(node, inputs)))
    if isinstance(value, Replicated):
        return [Replicated(out, is_sum and value.zero) for out in remade(node, inputs)]
    return list(map(Replicated, remade(node, spreader.wholes(inputs, node))))


def _reduced(value: Sharded, var: Variable, axes: Sequence[int]) -> Sharded:
    """Return the layout of an array after some axes are removed."""
    return Sharded(var, value.axis - sum(axis < value.axis for axis in axes), value.unit, value.interleaved)


@rule(ops.MaxAndArgmax, ops.Argmax)
def argmax(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Find the largest element of each row."""
    (value,) = inputs
    assert isinstance(node.op, ops.MaxAndArgmax | ops.Argmax)
    axes = range(node.inputs[0].type.ndim) if node.op.axis is None else node.op.axis
    if isinstance(value, Sharded):
        if value.axis in axes:
            raise NotSplittable(node, "it looks for the largest element of the whole batch")
        return [_reduced(value, out, axes) for out in remade(node, inputs)]
    return list(map(Replicated, remade(node, spreader.wholes(inputs, node))))


@rule(ops.Dot)
def dot(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Multiply matrices; a sum over examples is a summand."""
    left, right = inputs
    return _contract(spreader, node, inputs, left.var.type.ndim - 1, max(right.var.type.ndim - 2, 0), 0)


@rule(ops.BatchedDot)
def batched_dot(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Multiply matrices pairwise."""
    left, right = inputs
    if isinstance(left, Sharded) and isinstance(right, Sharded) and left.axis == right.axis == 0:
        return [_like(_one_layout(node, inputs), remade(node, inputs)[0])]
    if all(not isinstance(value, Sharded) or value.axis for value in inputs):
        return _contract(spreader, node, inputs, left.var.type.ndim - 1, 1, 1)
    raise NotSplittable(node, "one side is split and the other one is not")


def _contract(
    spreader: Spreader, node: Apply, inputs: list[Value], left_axis: int, right_axis: int, pairs: int
) -> list[Value]:
    """Return a product that sums over `left_axis` and `right_axis`; both inputs have the first `pairs` axes."""
    left, right = inputs
    splits = [value for value in inputs if isinstance(value, Sharded)]
    if isinstance(left, Sharded) and isinstance(right, Sharded):
        if left.axis == left_axis and right.axis == right_axis and left.interleaved == right.interleaved:
            return list(map(Partial, remade(node, inputs)))
        raise NotSplittable(node, "it multiplies each example with each other one")
    if not splits:
        summands = [isinstance(value, Partial) for value in inputs]
        zeros = list(map(_has_zeros, inputs))
        if sum(summands) == 1 and all(isinstance(value, Partial | Replicated) for value in inputs):
            return list(map(Partial, remade(node, inputs)))
        return [Replicated(out, any(zeros)) for out in remade(node, spreader.wholes(inputs, node))]
    contracted = left_axis if splits[0] is left else right_axis
    if splits[0].axis == contracted:
        raise NotSplittable(node, "it sums over the batch and over something that is not split")
    local = [value if value is splits[0] else spreader.whole(value, node) for value in inputs]
    axis = splits[0].axis
    if splits[0] is right:
        axis = left.var.type.ndim - 1 + (axis - pairs - (axis > right_axis))
    return [Sharded(out, axis, splits[0].unit, splits[0].interleaved) for out in remade(node, local)]


# Layers


@rule(ops.AbstractConv)
def convolve(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Convolve each image."""
    return _by_pictures(spreader, node, inputs, 0)


@rule(ops.AbstractConvGradInputs)
def gradient_of_pictures(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Return a gradient for each image."""
    return _by_pictures(spreader, node, inputs, 1)


@rule(ops.AbstractConvGradWeights)
def gradient_of_filters(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Return a gradient that is a sum over images."""
    pictures, gradient, *rest = inputs
    if not (isinstance(pictures, Sharded) and isinstance(gradient, Sharded) and pictures.axis == gradient.axis == 0):
        return _by_pictures(spreader, node, inputs, None)
    _one_layout(node, [pictures, gradient])
    return list(map(Partial, remade(node, [pictures, gradient, *spreader.wholes(rest, node)])))


def _by_pictures(spreader: Spreader, node: Apply, inputs: list[Value], pictures: int | None) -> list[Value]:
    """Return the result of an op with one input that may be split; the other inputs are shared by all images."""
    others = [value for i, value in enumerate(inputs) if i != pictures]
    if _has(others, Sharded):
        raise NotSplittable(node, "filters or their gradients depend on the example")
    value = None if pictures is None else inputs[pictures]
    if isinstance(value, Sharded) and value.axis:
        raise NotSplittable(node, f"the batch is split along axis {value.axis} of pictures, and not along axis 0")
    if not isinstance(value, Sharded):
        return list(map(Replicated, remade(node, spreader.wholes(inputs, node))))
    local = [each if each is value else spreader.whole(each, node) for each in inputs]
    return [_like(value, out) for out in remade(node, local)]


#: Ops that compute rows of all outputs from rows of inputs, along axis 0, and the number of inputs with rows.
_ROW_OPS = {
    ops.Softmax: 1,
    ops.LogSoftmax: 1,
    ops.SoftmaxGrad: 2,
    ops.CrossentropyCategorical1Hot: 2,
    ops.CrossentropyCategorical1HotGrad: 3,
    ops.CrossentropySoftmax1HotWithBiasDx: 3,
    ops.Pool: 1,
    ops.MaxPoolGrad: 3,
    ops.AveragePoolGrad: 2,
    ops.DownsampleFactorMaxGradGrad: 3,
    ops.MaxPoolRop: 2,
}
_POOLING = (
    *(ops.Pool, ops.MaxPoolGrad, ops.AveragePoolGrad),
    *(ops.DownsampleFactorMaxGradGrad, ops.MaxPoolRop),
)


@rule(*_ROW_OPS)
def row_op(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Compute rows from rows."""
    count = next(_ROW_OPS[cls] for cls in type(node.op).__mro__ if cls in _ROW_OPS)
    rows, others = inputs[:count], spreader.wholes(inputs[count:], node)
    if not _has(rows, Sharded):
        return list(map(Replicated, remade(node, [*spreader.wholes(rows, node), *others])))
    layout = _one_layout(node, rows)
    pooled = isinstance(node.op, _POOLING) and node.op.ndim == layout.var.type.ndim
    if layout.axis or pooled or not all(isinstance(value, Sharded) for value in rows):
        raise NotSplittable(node, "the batch is not split along axis 0, or not in all inputs")
    return [_like(layout, out) for out in remade(node, [*rows, *others])]


@rule(ops.SoftmaxWithBias, ops.CrossentropySoftmaxArgmax1HotWithBias)
def softmax_with_bias(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Compute rows from rows and one bias."""
    rows, bias, *classes = inputs
    split = [rows, *classes]
    if not _has(split, Sharded):
        return list(map(Replicated, remade(node, spreader.wholes(inputs, node))))
    if not all(isinstance(value, Sharded) and not value.axis for value in split):
        raise NotSplittable(node, "the batch is not split along axis 0, or not in all inputs")
    layout = _one_layout(node, split)
    return [_like(layout, out) for out in remade(node, [rows, spreader.whole(bias, node), *classes])]


@rule(ops.AbstractBatchNormInference)
def normalize_by_averages(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Normalize each example by given statistics."""
    return _by_pictures(spreader, node, inputs, 0)

"""The rules for ops that read or change parts of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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
from optdb.distributed.sharding.rules.arithmetic import vector_of
from optdb.distributed.sharding.spreading import Spreader, remade, rule
from optdb.host.api import ops
from optdb.host.api.graph import Apply, Constant
from optdb.host.theano.functions.originals import tensor


def _kept_axis(node: Apply, value: Sharded, index: Sequence[object]) -> int:
    """Return the split axis of a selected part, which must contain all rows of the batch."""
    chosen = index[value.axis] if value.axis < len(index) else slice(None)
    if not isinstance(chosen, slice) or not _is_full(chosen):
        raise NotSplittable(node, "it selects rows of the batch by index")
    return value.axis - sum(not isinstance(item, slice) for item in index[: value.axis])


def _is_full(chosen: slice) -> bool:
    def is_one_of(item: object, *numbers: int) -> bool:
        return item is None or item in numbers or (isinstance(item, Constant) and item.data in numbers)

    return is_one_of(chosen.start, 0) and chosen.stop is None and is_one_of(chosen.step, 1)


@rule(ops.Subtensor)
def subtensor(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Take a part of each row, or elements of a vector of lengths."""
    value, *numbers = inputs
    assert isinstance(node.op, ops.Subtensor)
    index = ops.get_idx_list(node.inputs, node.op.idx_list)
    if isinstance(value, Vector):
        return [_of_vector(spreader, node, value, index)]
    numbers = spreader.wholes(numbers, node)
    if isinstance(value, Sharded):
        axis = _kept_axis(node, value, index)
        return [replace(value, var=remade(node, [value, *numbers])[0], axis=axis)]
    if not isinstance(value, Replicated | Partial):
        raise NotSplittable(node, f"it takes a part of {value.var}, which is specific to each worker")
    return [with_layout_of(value, remade(node, [value, *numbers])[0])]


def _of_vector(spreader: Spreader, node: Apply, value: Vector, index: Sequence[Any]) -> Value:
    (item,) = index
    bounds = [item.start, item.stop, item.step] if isinstance(item, slice) else [item]
    if not all(bound is None or isinstance(bound, int | Constant) for bound in bounds):
        return Replicated(remade(node, spreader.wholes([value, *map(spreader.value, node.inputs[1:])], node))[0])
    numbers = [int(bound.data) if isinstance(bound, Constant) else bound for bound in bounds]
    if isinstance(item, slice):
        return vector_of(value.entries[slice(*numbers)])
    entry = value.entries[numbers[0]]
    out = node.outputs[0].type.filter_variable(entry.var)
    return replace(entry, var=out) if isinstance(entry, Length) else Replicated(out)


@rule(ops.IncSubtensor)
def inc_subtensor(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Set or increment a part of each row."""
    value, new, *numbers = inputs
    numbers = spreader.wholes(numbers, node)
    assert isinstance(node.op, ops.IncSubtensor)
    index = ops.get_idx_list([node.inputs[0], *node.inputs[2:]], node.op.idx_list)
    summable = [isinstance(each, Partial) or has_zeros(each) for each in (value, new)]
    if has([value, new], Partial) and all(summable):
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
            return [with_layout_of(value, remade(node, [value, new, *numbers])[0])]
    elif not has([value, new], Sharded):
        return list(map(Replicated, remade(node, [*spreader.wholes([value, new], node), *numbers])))
    raise NotSplittable(node, f"{new.var} and {value.var} are split differently")


@rule(ops.AdvancedSubtensor1)
def rows_by_number(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Look up rows of a table for each example."""
    table, numbers = inputs
    if isinstance(numbers, Sharded) and not isinstance(table, Sharded):
        table = spreader.whole(table, node)
        return [with_layout_of(numbers, remade(node, [table, numbers])[0])]
    keeps_rows = isinstance(table, Partial | Replicated) or (isinstance(table, Sharded) and table.axis)
    if keeps_rows and not isinstance(numbers, Sharded):
        return [with_layout_of(table, remade(node, [table, spreader.whole(numbers, node)])[0])]
    raise NotSplittable(node, "it selects rows of the batch by index")


@rule(ops.AdvancedIncSubtensor1)
def increment_rows(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Add each example's contributions to rows of a table; each worker computes the sum over its own examples."""
    table, new, numbers = inputs
    assert isinstance(node.op, ops.AdvancedIncSubtensor1)
    if isinstance(numbers, Sharded) and isinstance(table, Partial | Replicated) and not node.op.set_instead_of_inc:
        if isinstance(new, Sharded) and new.axis != 0:
            raise NotSplittable(node, f"{new.var} and {numbers.var} are split differently")
        new = _of_rows(spreader, node, new, numbers)
        if isinstance(table, Partial) or table.zero:
            return [Partial(remade(node, [table, new, numbers])[0])]
        added = remade(node, [Replicated(tensor.zeros_like(table.var)), new, numbers])[0]
        return [Replicated(table.array + spreader.whole(Partial(added), node).var)]
    if not has(inputs, Sharded):
        return spreader.replicated(node, inputs)
    raise NotSplittable(node, "it changes rows of the batch by index")


def _axes_of(index: Value) -> int | None:
    """Return the rank of an index; None for slices and new axes."""
    return getattr(index.var.type, "ndim", None)


def _indexes_rows(node: Apply, layout: Sharded, index: Sequence[Value]) -> None:
    """Raise an error unless the indices select elements of each row."""
    all_vectors = all(_axes_of(value) == 1 for value in index)
    if layout.axis or layout.interleaved or not all_vectors or not isinstance(index[0], RowNumbers):
        raise NotSplittable(node, "it selects rows of the batch by index")


@rule(ops.AdvancedSubtensor)
def elements_by_number(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Select elements in each row (``x[arange(n), classes]``), or elements in a table for each example."""
    value, *index = inputs
    if not all(isinstance(each, Sharded | RowNumbers | Replicated) and _axes_of(each) in (0, 1) for each in index):
        raise NotSplittable(node, "it selects elements by a mix of slices and arrays")
    local = [each for each in index if not isinstance(each, Replicated)]
    if isinstance(value, Sharded):
        _indexes_rows(node, value, index)
    elif not local or has(local, RowNumbers):
        raise NotSplittable(node, "it selects elements of an array that is not split by row numbers")
    else:
        value = spreader.whole(value, node)
    for each in local:
        if isinstance(each, Sharded) and (each.axis or each.interleaved):
            raise NotSplittable(node, f"{each.var} is not split along axis 0, as an index must be")
    if any(
        isinstance(each, Replicated) and each.var.type.ndim and not each.var.type.broadcastable[0] for each in index
    ):
        raise NotSplittable(node, "an index has the elements of the whole batch, but a worker has a part of the batch")
    return [Sharded(remade(node, [value, *index])[0], 0)]


@rule(ops.AdvancedIncSubtensor)
def increment_elements(spreader: Spreader, node: Apply, inputs: list[Value]) -> list[Value]:
    """Change elements in each row."""
    value, new, *index = inputs
    if not isinstance(value, Sharded):
        raise NotSplittable(node, "it changes elements by index in an array that is not split")
    _indexes_rows(node, value, index)
    new = _of_rows(spreader, node, new, value)
    return [with_layout_of(value, remade(node, [value, new, *index])[0])]


def _of_rows(spreader: Spreader, node: Apply, new: Value, like: Sharded) -> Value:
    """Return new elements for a worker's rows: a row for each row of `like`, or one row for all of them."""
    if isinstance(new, Sharded):
        common_layout(node, [like, new])
        return new
    new = spreader.whole(new, node)
    if new.var.type.ndim and not new.var.type.broadcastable[0]:
        raise NotSplittable(node, f"{new.var} has the rows of the whole batch, but a worker has a part of the batch")
    return new

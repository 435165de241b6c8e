"""Indexing: ops that take, set and increment parts of arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.basic import AllocEmpty
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    unflatten_index_variables,
)
from pytensor.tensor.type_other import NoneTypeT

from optdb.device.expressions import applied, broadcast, cast, replaced, reshaped, scattered, transposed, view
from optdb.device.functions.host_parts import Value
from optdb.device.tensors import (
    Constant,
    Coordinate,
    Iota,
    Lengths,
    Lookup,
    ScatterSet,
    Stripe,
    Tensor,
    length_tensor,
    whole_source,
)
from optdb.pytensor.dispatch import OnHost, described, tensors_of
from optdb.pytensor.tracing import GraphTrace
from optdb.runtime.sizes import as_int, broadcast_shapes, is_at_most, is_same, part_of

#: A scatter becomes a lookup for each element if the indexed axes have at most this many elements for each index.
_MOST_UNNAMED = 8


def _stripe(entry: slice, length: int, trace: GraphTrace) -> Stripe:
    """Return the indices that a slice selects; its bounds may be variables."""

    def number(part: Any) -> Any:
        if part is None or (isinstance(part, Variable) and isinstance(part.type, NoneTypeT)):
            return None
        return as_int(trace.concrete(part) if isinstance(part, Variable) else part)

    start, count, step = part_of(length, slice(number(entry.start), number(entry.stop), number(entry.step)))
    return Stripe(start, step, count)


def _entries(entries: Sequence[Any], x: Tensor, trace: GraphTrace) -> list[slice | Tensor]:
    """Return a slice or an integer tensor for each axis of `x`; masks are converted to positions."""
    found: list[slice | Tensor] = []
    for entry in entries:
        if isinstance(entry, slice):
            found.append(entry)
            continue
        (index,) = tensors_of([trace.value(entry)])
        found += _positions(index, x.shape[len(found) :], trace) if index.dtype == "bool" else [index]
    return found + [slice(None)] * (x.ndim - len(found))


def _positions(mask: Tensor, lengths: Sequence[int], trace: GraphTrace) -> list[Tensor]:
    """Return the positions at which a mask is true, along each of its axes."""
    if not isinstance(mask, Constant) or not mask.ndim:
        raise OnHost("the number of elements that a boolean index selects is unknown")
    if mask.shape != tuple(lengths[: mask.ndim]):
        raise IndexError(f"a mask of shape {mask.shape} does not match axes of lengths {tuple(lengths)}")
    for number, positions in enumerate(np.nonzero(mask.value)):
        # The keys for the axes of a mask are negative, so that they cannot collide with lengths.
        trace.indices.setdefault((mask, -1 - number), Constant(positions))
    return [trace.indices[mask, -1 - number] for number in range(mask.ndim)]


def _checked(index: Tensor, length: int, trace: GraphTrace) -> Tensor:
    """Return an index without negative elements; each call checks that all elements are in bounds."""
    number = _number_in(index)
    if number is not None:
        if number < -length or number >= length:
            raise IndexError(f"index {number} is out of bounds for an axis of length {length}")
        return length_tensor([number + length if number < 0 else number], index.shape)
    if isinstance(index, Constant):
        # Use int64, because the length may not fit into the index's dtype.
        value = index.value.astype("int64")
        if value.size and (value.min() < -length or value.max() >= length):
            wrong = value[(value < -length) | (value >= length)].flat[0]
            raise IndexError(f"index {wrong} is out of bounds for an axis of length {length}")
        key = index, length
        if key not in trace.indices:
            from_end = value < 0
            trace.indices[key] = Constant(np.where(from_end, value + length, value) if from_end.any() else value)
        return trace.indices[key]
    if isinstance(whole_source(index), Iota) and is_at_most(whole_source(index).size, length):
        return index
    if index.size and not length:
        raise IndexError("an index is out of bounds for an axis of length 0")
    wide = cast(index, "int64")
    is_within = trace.tracer.is_within(index, length) if index.size else True
    if is_within is False:
        raise IndexError(f"an index is out of bounds for an axis of length {length}")
    if is_within is None:
        above = applied("GE", "bool", wide, _of_length(-length, index.ndim))
        below = applied("LT", "bool", wide, _of_length(length, index.ndim))
        within = applied("AND", "bool", above, below)
        message = f"an index is out of bounds for an axis of length {length}"
        trace.tracer.check(within, lambda: IndexError(message))
    is_negative = applied("LT", "bool", wide, _of_length(0, index.ndim))
    return applied("Switch", "int64", is_negative, applied("Add", "int64", wide, _of_length(length, index.ndim)), wide)


def _number_in(index: Tensor) -> Any:
    """Return the only number in an index, which may be symbolic; None if there are several or the value is unknown."""
    if index.size != 1 or not isinstance(index, Constant | Lengths):
        return None
    return index.numbers[0] if isinstance(index, Lengths) else int(index.value.item())


def _of_length(number: int, ndim: int) -> Tensor:
    return length_tensor([number], (1,) * ndim)


def _counted_axis(index: Tensor) -> tuple[int, int] | None:
    """Return the axis along which the index values increase by one, and the first value.

    Return None if there is no such axis, or if another axis is longer than 1.
    """
    if isinstance(index, Constant):
        if index.size < 2 or max(index.shape) != index.size:
            return None
        flat = index.value.reshape(-1)
        return (index.shape.index(index.size), int(flat[0])) if (np.diff(flat) == 1).all() else None
    if not isinstance(whole_source(index), Iota):
        return None
    longer = [axis for axis, length in enumerate(index.shape) if not is_same(length, 1)]
    return (longer[0], 0) if len(longer) == 1 and is_same(index.shape[longer[0]], whole_source(index).size) else None


def _axes_ahead(indexed: Sequence[int], kept: Sequence[int]) -> int:
    """Return how many sliced axes precede the index arrays' axes in the result; 0 if the arrays are not adjacent."""
    if not indexed or list(indexed) != list(range(indexed[0], indexed[-1] + 1)):
        return 0
    return len([axis for axis in kept if axis < indexed[0]])


def _coordinate(index: Tensor, common: tuple[int, ...], named: tuple[int, ...]) -> Coordinate:
    """Broadcast an index array to the shape `common`, and return it as a coordinate along the axes `named`."""
    number = _number_in(index)
    if number is not None:
        return Coordinate(number)
    counted = _counted_axis(index)
    if counted is not None:
        axis, first = counted
        return Coordinate(first, ((named[axis + len(common) - index.ndim], 1),))
    return Coordinate(0, (), Lookup(broadcast(index, common), named))


class Region:
    """The elements of a tensor that a node's indices select."""

    def __init__(self, node: Apply, x: Tensor, indices: Sequence[Variable], trace: GraphTrace) -> None:
        entries = _entries(unflatten_index_variables(indices, node.op.idx_list), x, trace)
        self.stripes: dict[int, Stripe] = {}
        #: For each axis that is not sliced, the checked index array or number.
        self.indices: dict[int, Tensor] = {}
        for axis, entry in enumerate(entries):
            if isinstance(entry, slice):
                self.stripes[axis] = _stripe(entry, x.shape[axis], trace)
            else:
                self.indices[axis] = _checked(entry, x.shape[axis], trace)
        values = self.indices
        common = broadcast_shapes(*[value.shape for value in values.values()]) if values else ()
        kept = sorted(self.stripes)
        ahead = _axes_ahead(sorted(values), kept)
        #: The axes of the result that come from the broadcast index arrays.
        self.looked_up = slice(ahead, ahead + len(common))
        before, after = kept[:ahead], kept[ahead:]
        lengths = {axis: stripe.length for axis, stripe in self.stripes.items()}
        self.shape = (*[lengths[axis] for axis in before], *common, *[lengths[axis] for axis in after])
        axis_in_result = {axis: number for number, axis in enumerate(before)}
        axis_in_result |= {axis: ahead + len(common) + number for number, axis in enumerate(after)}
        named = tuple(range(ahead, ahead + len(common)))
        self.coordinates = [
            Coordinate(self.stripes[axis].start, ((axis_in_result[axis], self.stripes[axis].step),))
            if axis in self.stripes
            else _coordinate(values[axis], common, named)
            for axis in range(x.ndim)
        ]

    @property
    def is_strided(self) -> bool:
        return all(
            axis in self.stripes or not (coordinate.lookup or coordinate.terms)
            for axis, coordinate in enumerate(self.coordinates)
        )

    def taken(self, x: Tensor) -> Tensor:
        return view(x, self.shape, self.coordinates)

    def sources(self, x: Tensor, is_sum: bool) -> tuple[Tensor, Tensor] | None:
        """Return, for each element of `x`, whether it is selected, and the number of the last index that selects it.

        Return None if the indices are unknown or select few elements, or if `is_sum` is set and several indices select
        the same element.
        """
        values = [index.value for index in self.indices.values() if isinstance(index, Constant)]
        whole = all(stripe == Stripe(0, 1, x.shape[axis]) for axis, stripe in self.stripes.items())
        shape = [x.shape[axis] if axis in self.indices else 1 for axis in range(x.ndim)]
        named = math.prod(self.shape[self.looked_up])
        if len(values) < len(self.indices) or not whole or math.prod(shape) > _MOST_UNNAMED * named:
            return None
        table = np.full([x.shape[axis] for axis in self.indices], -1)
        table[tuple(values)] = np.arange(named).reshape(self.shape[self.looked_up])
        is_named = table >= 0
        if is_sum and np.count_nonzero(is_named) < named:
            return None
        return Constant(is_named.reshape(shape)), Constant(np.maximum(table, 0))

    def spread(self, part: Tensor, x: Tensor, source: Tensor) -> Tensor:
        """Return, for each element of `x`, the element of `part` whose number is in `source`."""
        first, last = self.looked_up.start, self.looked_up.stop
        if isinstance(part, Constant) and isinstance(source, Constant) and not self.stripes:
            return Constant(part.value.reshape(-1)[source.value])
        flat = reshaped(part, [*part.shape[:first], math.prod(part.shape[first:last]), *part.shape[last:]])
        coordinates = [Coordinate(0, ((axis, 1),)) for axis in sorted(self.stripes)]
        coordinates.insert(first, Coordinate(0, (), Lookup(source, tuple(self.indices))))
        return view(flat, x.shape, coordinates)

    def all_stripes(self) -> list[Stripe]:
        """Return the strided range of indices that is selected along each axis."""
        return [
            self.stripes.get(axis) or Stripe(coordinate.const, 1, 1) for axis, coordinate in enumerate(self.coordinates)
        ]

    def with_all_axes(self, part: Tensor) -> Tensor:
        """Return `part` with an additional axis of length 1 for each axis whose index is a number."""
        order: list[int | None] = [
            coordinate.terms[0][0] if axis in self.stripes else None for axis, coordinate in enumerate(self.coordinates)
        ]
        if sorted(axis for axis in order if axis is not None) == list(range(part.ndim)):
            return transposed(part, order)
        return reshaped(part, [stripe.length for stripe in self.all_stripes()])


@described.register(Subtensor)
@described.register(AdvancedSubtensor)
def _subtensor(op: Any, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    (x,) = tensors_of(inputs[:1])
    return [Region(node, x, node.inputs[1:], trace).taken(x)]


@described.register(IncSubtensor)
@described.register(AdvancedIncSubtensor)
def _inc_subtensor(op: Any, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    x, given = tensors_of(inputs[:2])
    region = Region(node, x, node.inputs[2:], trace)
    part = broadcast(cast(given, x.dtype), region.shape)
    if not part.size:
        return [x]
    if region.is_strided:
        if not op.set_instead_of_inc:
            part = applied("Add", x.dtype, region.taken(x), part)
        return [replaced(x, region.with_all_axes(part), region.all_stripes())]
    sources = region.sources(x, is_sum=not op.set_instead_of_inc)
    if sources is not None:
        is_named, source = sources
        chosen = region.spread(part, x, source)
        if not op.set_instead_of_inc:
            chosen = applied("Add", x.dtype, x, chosen)
        elif isinstance(getattr(node.inputs[0].owner, "op", None), AllocEmpty):  # unselected elements are undefined
            return [chosen]
        return [applied("Switch", x.dtype, is_named, chosen, x)]
    if op.set_instead_of_inc:
        return [ScatterSet(x, part, region.coordinates)]
    if getattr(op, "ignore_duplicates", False):
        return [ScatterSet(x, applied("Add", x.dtype, region.taken(x), part), region.coordinates)]
    if np.dtype(x.dtype).kind in "cb" or x.dtype == "float16":
        raise OnHost(f"increments of {x.dtype} by index are not supported on the device")
    return [applied("Add", x.dtype, x, scattered(part, x.shape, region.coordinates))]

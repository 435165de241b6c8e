"""Parts of arrays by indices, taken, set and incremented."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    unflatten_index_variables,
)
from pytensor.tensor.type_other import NoneTypeT

from optdb.codegen.functions.function import Value
from optdb.codegen.functions.tensors import (
    Constant,
    Coordinate,
    Lookup,
    Replaced,
    ScatterSet,
    Stripe,
    Tensor,
    applied,
    broadcast,
    cast,
    reshaped,
    scattered,
    transposed,
    view,
)
from optdb.pytensor.dispatch import NodeTrace, OnHost, described, tensors_of


def _stripe(entry: slice, length: int, trace: NodeTrace) -> Stripe:
    """Return the indices that a slice of variables names."""

    def number(part: Any) -> int | None:
        if part is None or (isinstance(part, Variable) and isinstance(part.type, NoneTypeT)):
            return None
        return int(trace.concrete(part)) if isinstance(part, Variable) else int(part)

    indices = range(*slice(number(entry.start), number(entry.stop), number(entry.step)).indices(length))
    return Stripe(indices.start, indices.step, len(indices))


def _checked(index: Tensor, length: int, trace: NodeTrace) -> Tensor:
    """Return an index that counts from zero on; a call checks that its elements are within an axis of some length."""
    if isinstance(index, Constant):
        # Signed and wide: lengths do not fit into the narrow dtypes that constants have.
        value = index.value.astype("int64")
        if value.size and (value.min() < -length or value.max() >= length):
            wrong = value[(value < -length) | (value >= length)].flat[0]
            raise IndexError(f"index {wrong} is out of bounds for an axis of length {length}")
        key = index, length
        if key not in trace.indices:
            trace.indices[key] = Constant(np.where(value < 0, value + length, value))
        return trace.indices[key]
    if index.size and not length:
        raise IndexError("an index is out of bounds for an axis of length 0")
    wide = cast(index, "int64")
    if index.size:
        limits = [Constant(np.full((1,) * index.ndim, limit, "int64")) for limit in (-length, length)]
        above, below = applied("GE", "bool", wide, limits[0]), applied("LT", "bool", wide, limits[1])
        within = applied("AND", "bool", above, below)
        message = f"an index is out of bounds for an axis of length {length}"
        trace.tracer.check(within, lambda: IndexError(message))
    zero, many = (Constant(np.full((1,) * index.ndim, number, "int64")) for number in (0, length))
    return applied("Switch", "int64", applied("LT", "bool", wide, zero), applied("Add", "int64", wide, many), wide)


def _counted_axis(index: Constant) -> int | None:
    """Return the axis along which an index counts up by one, if it is as long as the index; else None."""
    if index.size < 2 or max(index.shape) != index.size:
        return None
    flat = index.value.reshape(-1)
    return index.shape.index(index.size) if (np.diff(flat) == 1).all() else None


def _axes_ahead(indexed: Sequence[int], kept: Sequence[int]) -> int:
    """Return how many of the axes that are kept come ahead of those of the index arrays in the result.

    The index arrays' come first, unless they are side by side.
    """
    if not indexed or list(indexed) != list(range(indexed[0], indexed[-1] + 1)):
        return 0
    return len([axis for axis in kept if axis < indexed[0]])


def _coordinate(index: Tensor, common: tuple[int, ...], named: tuple[int, ...]) -> Coordinate:
    """Return the coordinate along an axis that an array indexes; `named` are axes of shape `common`."""
    if isinstance(index, Constant) and index.size == 1:
        return Coordinate(int(index.value.reshape(())))
    along = _counted_axis(index) if isinstance(index, Constant) else None
    if isinstance(index, Constant) and along is not None:
        return Coordinate(int(index.value.flat[0]), ((named[along + len(common) - index.ndim], 1),))
    return Coordinate(0, (), Lookup(broadcast(index, common), named))


class Region:
    """The elements that the indices of a node name.

    Parameters
    ----------
    node : Apply
        The node.
    x : Tensor
        What is indexed.
    indices : sequence of Variable
        The inputs of the node that are indices.
    """

    def __init__(self, node: Apply, x: Tensor, indices: Sequence[Variable], trace: NodeTrace) -> None:
        entries = list(unflatten_index_variables(indices, node.op.idx_list))
        entries += [slice(None)] * (x.ndim - len(entries))
        arrays = {axis: entry for axis, entry in enumerate(entries) if not isinstance(entry, slice)}
        for entry in arrays.values():
            if isinstance(entry, Variable) and getattr(entry.type, "dtype", None) == "bool":
                raise OnHost("an index of booleans selects as many elements as are true")
        self.stripes = {
            axis: _stripe(entry, x.shape[axis], trace) for axis, entry in enumerate(entries) if isinstance(entry, slice)
        }
        indices = tensors_of([trace.value(var) for var in arrays.values()])
        values = {axis: _checked(index, x.shape[axis], trace) for axis, index in zip(arrays, indices)}
        common = np.broadcast_shapes(*[value.shape for value in values.values()]) if values else ()
        kept = sorted(self.stripes)
        ahead = _axes_ahead(sorted(values), kept)
        before, after = kept[:ahead], kept[ahead:]
        self.shape = (
            *[self.stripes[axis].length for axis in before],
            *common,
            *[self.stripes[axis].length for axis in after],
        )
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
        """Whether the elements are a strided part."""
        return all(
            axis in self.stripes or not (coordinate.lookup or coordinate.terms)
            for axis, coordinate in enumerate(self.coordinates)
        )

    def taken(self, x: Tensor) -> Tensor:
        """Return the elements of a tensor."""
        return view(x, self.shape, self.coordinates)

    def fitted(self, part: Tensor) -> Tensor:
        """Return values broadcast to the elements."""
        return broadcast(part, self.shape)

    def all_stripes(self) -> list[Stripe]:
        """Return the stripes of all axes, of a strided part."""
        return [
            self.stripes.get(axis) or Stripe(coordinate.const, 1, 1) for axis, coordinate in enumerate(self.coordinates)
        ]

    def with_all_axes(self, part: Tensor) -> Tensor:
        """Return values of the elements with an axis of length 1 for each index that is a number."""
        order: list[int | None] = []
        for axis in range(len(self.coordinates)):
            order.append(self.coordinates[axis].terms[0][0] if axis in self.stripes else None)
        if sorted(axis for axis in order if axis is not None) == list(range(part.ndim)):
            return transposed(part, order)
        return reshaped(part, [stripe.length for stripe in self.all_stripes()])


@described.register(Subtensor)
@described.register(AdvancedSubtensor)
def _subtensor(op: Any, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    (x,) = tensors_of(inputs[:1])
    return [Region(node, x, node.inputs[1:], trace).taken(x)]


@described.register(IncSubtensor)
@described.register(AdvancedIncSubtensor)
def _inc_subtensor(op: Any, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    x, given = tensors_of(inputs[:2])
    region = Region(node, x, node.inputs[2:], trace)
    part = region.fitted(cast(given, x.dtype))
    if not part.size:
        return [x]
    if region.is_strided:
        if not op.set_instead_of_inc:
            part = applied("Add", x.dtype, region.taken(x), part)
        return [Replaced(x, region.with_all_axes(part), region.all_stripes())]
    if op.set_instead_of_inc:
        return [ScatterSet(x, part, region.coordinates)]
    if getattr(op, "ignore_duplicates", False):
        return [ScatterSet(x, applied("Add", x.dtype, region.taken(x), part), region.coordinates)]
    if np.dtype(x.dtype).kind in "cb" or x.dtype == "float16":
        raise OnHost(f"{x.dtype} is not added up by index on the device")
    return [applied("Add", x.dtype, x, scattered(part, x.shape, region.coordinates))]

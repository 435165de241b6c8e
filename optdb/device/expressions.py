"""Functions that build lazy tensors and simplify them, for example views of views and reductions of a `Switch`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.reductions.folds import NOTHING
from optdb.codegen.scalars.program import Scalar, ScalarProgram
from optdb.device.tensors import (
    Constant,
    Coordinate,
    Folded,
    Iota,
    Joined,
    Lookup,
    Mapped,
    Replaced,
    ReshapedTensor,
    ScatterSum,
    Stripe,
    Tensor,
    ViewTensor,
)
from optdb.runtime.sizes import as_int, broadcast_shapes, exact_quotient, is_same, largest, smallest


def mapped(program: ScalarProgram, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Apply a program to tensors, which are padded to equal rank; raise ValueError if they do not broadcast."""
    ndim = max((x.ndim for x in inputs), default=0)
    inputs = [padded(x, ndim) for x in inputs]
    shape = broadcast_shapes(*[x.shape for x in inputs])
    return [Mapped(program, inputs, shape, number) for number in range(len(program.results))]


def applied(scalar: str, dtype: str, *inputs: Tensor) -> Tensor:
    """Apply a scalar operation to tensors."""
    return mapped(ScalarProgram.of(Scalar(scalar, dtype), [x.dtype for x in inputs]), inputs)[0]


def cast(x: Tensor, dtype: str) -> Tensor:
    """Return a tensor cast to a dtype."""
    return x if x.dtype == dtype else applied("Cast", dtype, x)


def padded(x: Tensor, ndim: int) -> Tensor:
    """Return a tensor padded with leading axes of length 1 to `ndim` axes."""
    return x if x.ndim == ndim else transposed(x, [None] * (ndim - x.ndim) + list(range(x.ndim)))


def transposed(x: Tensor, order: Sequence[int | None]) -> Tensor:
    """Return a tensor with its axes reordered; None adds an axis of length 1, and axes of length 1 may be omitted.

    Raises
    ------
    ValueError
        If an axis whose length is not 1 is omitted.
    """
    if list(order) == list(range(x.ndim)):
        return x
    for axis, length in enumerate(x.shape):
        if axis not in order and length != 1:
            raise ValueError(f"axis {axis} of length {length} cannot be dropped: only axes of length 1 can")
    terms: dict[int, int] = {axis: number for number, axis in enumerate(order) if axis is not None}
    coordinates = [Coordinate(0, ((terms[axis], 1),) if axis in terms else ()) for axis in range(x.ndim)]
    return view(x, [1 if axis is None else x.shape[axis] for axis in order], coordinates)


def view(x: Tensor, shape: Sequence[int], coordinates: Sequence[Coordinate]) -> Tensor:
    """Return a view; skip inner views, and skip joins and replacements if the view reads only one of their parts."""
    if any(coordinate.lookup for coordinate in coordinates) or 0 in shape:
        return ViewTensor(x, shape, coordinates)
    while True:
        if isinstance(x, ViewTensor) and x.is_affine:
            coordinates = [_composed(inner, coordinates) for inner in x.coordinates]
            x = x.x
            continue
        found = None
        if isinstance(x, Joined | Replaced):
            found = _operand_within(x, [_bounds(coordinate, shape) for coordinate in coordinates])
        if found is None:
            return x if _is_whole(x, shape, coordinates) else ViewTensor(x, shape, coordinates)
        x, starts = found
        lead = len(coordinates) - x.ndim
        coordinates = [
            Coordinate(coordinate.const - start, coordinate.terms) if not is_same(length, 1) else Coordinate()
            for coordinate, start, length in zip(coordinates[lead:], starts[lead:], x.shape, strict=True)
        ]


def _is_whole(x: Tensor, shape: Sequence[int], coordinates: Sequence[Coordinate]) -> bool:
    """Return whether an affine view has the same elements as its source, at the same indices."""
    if len(shape) != x.ndim or not all(map(is_same, shape, x.shape)):
        return False
    own = [Coordinate(0, ((axis, 1),)) for axis in range(x.ndim)]
    return all(is_same(length, 1) or a == b for a, b, length in zip(coordinates, own, x.shape, strict=True))


def _bounds(coordinate: Coordinate, shape: Sequence[int]) -> tuple[int, int]:
    """Return the lowest and the highest index that an affine coordinate takes in a view of the given shape."""
    ends = [factor * (shape[axis] - 1) for axis, factor in coordinate.terms]
    low, high = (sum(chosen(end, 0) for end in ends) for chosen in (smallest, largest))
    return coordinate.const + low, coordinate.const + high


def _operand_within(x: Tensor, bounds: Sequence[tuple[int, int]]) -> tuple[Tensor, list[int]] | None:
    """Return the operand that holds all elements within the bounds, and its start; None if there is no such operand."""
    starts = [0] * len(bounds)
    if isinstance(x, Joined):
        low, high = bounds[x.axis]
        for part in x.parts:
            length = part.shape[x.axis]
            if starts[x.axis] <= low and high < starts[x.axis] + length:
                return part, starts
            starts[x.axis] += length
    elif isinstance(x, Replaced):
        slices = x.slices
        # Unrolled loops replace thousands of slices; for a view that reads none of them, this check skips all of them
        # at once.
        if slices is not None and (bounds[slices.axis][1] < slices.low or bounds[slices.axis][0] > slices.high):
            return slices.base, starts
        read = list(zip(bounds, (stripe.bounds for stripe in x.stripes), strict=True))
        if any(high < first or low > last for (low, high), (first, last) in read):
            return x.x, starts
        is_dense = all(stripe.step == 1 for stripe in x.stripes)
        if is_dense and all(first <= low and high <= last for (low, high), (first, last) in read):
            return x.part, [stripe.start for stripe in x.stripes]
    return None


def _composed(inner: Coordinate, outer: Sequence[Coordinate]) -> Coordinate:
    const = inner.const
    terms: dict[int, int] = {}
    for axis, factor in inner.terms:
        const += factor * outer[axis].const
        for outer_axis, outer_factor in outer[axis].terms:
            terms[outer_axis] = terms.get(outer_axis, 0) + factor * outer_factor
    return Coordinate(const, tuple(sorted((axis, factor) for axis, factor in terms.items() if factor)))


def broadcast(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Broadcast a tensor to a shape; raise ValueError if that is impossible."""
    shape = tuple(map(as_int, shape))
    if x.shape == shape:
        return x
    if broadcast_shapes(x.shape, shape) != shape:
        raise ValueError(f"cannot broadcast an array of shape {x.shape} to {shape}")
    lead = len(shape) - x.ndim
    coordinates = [
        Coordinate(0, ((axis + lead, 1),) if not is_same(length, 1) else ()) for axis, length in enumerate(x.shape)
    ]
    return view(x, shape, coordinates)


def reshaped(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Reshape a tensor; raise ValueError if the numbers of elements differ."""
    shape = tuple(map(as_int, shape))
    if math.prod(shape) != x.size:
        raise ValueError(f"cannot reshape an array of shape {x.shape} into shape {shape}")
    if shape == x.shape:
        return x
    if isinstance(x, ReshapedTensor):
        return reshaped(x.x, shape)
    coordinates = _split_coordinates(x.shape, shape)
    return ReshapedTensor(x, shape) if coordinates is None else view(x, shape, coordinates)


def _split_coordinates(source: tuple[int, ...], shape: tuple[int, ...]) -> list[Coordinate] | None:
    """Return the coordinates of a reshape that only splits axes, or adds and drops axes of length 1; else None."""
    coordinates, axis = [], 0
    for length in source:
        if is_same(length, 1):
            coordinates.append(Coordinate())
            continue
        axes, left = [], length
        while axis < len(shape) and not is_same(left, 1):
            quotient = exact_quotient(left, shape[axis])
            if quotient is None:
                return None
            left = quotient
            if not is_same(shape[axis], 1):
                axes.append(axis)
            axis += 1
        if not is_same(left, 1):
            return None
        terms, factor = [], 1
        for split in reversed(axes):
            terms.append((split, factor))
            factor *= shape[split]
        coordinates.append(Coordinate(0, tuple(sorted(terms))))
    return coordinates


def strided(x: Tensor, stripes: Sequence[Stripe]) -> Tensor:
    """Return a strided slice of a tensor."""
    coordinates = [Coordinate(stripe.start, ((axis, stripe.step),)) for axis, stripe in enumerate(stripes)]
    return view(x, [stripe.length for stripe in stripes], coordinates)


def rows_of(x: Tensor, first: int, count: int) -> Tensor:
    """Select `count` consecutive rows of a tensor, from row `first` on."""
    return strided(x, [Stripe(first, 1, count), *(Stripe(0, 1, length) for length in x.shape[1:])])


def replaced(x: Tensor, part: Tensor, stripes: Sequence[Stripe]) -> Tensor:
    """Replace a strided slice of a tensor; the result is a join if all slices along an axis have been replaced."""
    result = Replaced(x, part, stripes)
    if all(stripe == Stripe(0, 1, length) for stripe, length in zip(stripes, x.shape, strict=True)):
        return broadcast(part, x.shape)
    slices = result.slices
    # Checking the count first avoids walking the whole chain of replacements after each replacement.
    if slices is None or slices.count < x.shape[slices.axis]:
        return result
    return _joined_slices(result, slices.axis)


def _joined_slices(last: Replaced, axis: int) -> Tensor:
    """If all slices along an axis were replaced, return the join of the new slices; otherwise, return `last`."""
    slices: dict[int, Replaced] = {}
    taken = 0
    x: Tensor = last
    while isinstance(x, Replaced) and all(
        stripe == Stripe(0, 1, x.shape[number]) for number, stripe in enumerate(x.stripes) if number != axis
    ):
        stripe = x.stripes[axis]
        if stripe.step != 1 or stripe.start in slices:
            break
        slices[stripe.start] = x
        taken += stripe.length
        x = x.x
        if taken >= last.shape[axis]:
            break
    stop, parts = 0, []
    for start, piece in sorted(slices.items()):
        if start != stop:
            return last
        parts.append(broadcast(piece.part, [stripe.length for stripe in piece.stripes]))
        stop = start + parts[-1].shape[axis]
    return joined(parts, axis) if stop == last.shape[axis] else last


def folded(
    fold: str, x: Tensor, axes: Sequence[int], dtype: str, acc_dtype: str | None = None, initial: Any = None
) -> Tensor:
    """Fold a tensor over axes; a fold of no elements is `initial` or, by default, the identity of the fold's scalar.

    Raises
    ------
    ValueError
        If there are no elements, `initial` is not given, and the scalar has no identity.
    """
    if not axes:
        return cast(cast(x, acc_dtype or dtype), dtype)
    result = Folded(fold, x, axes, dtype, acc_dtype)
    if result.count:
        return _fold_choice(result) or result
    if initial is None and fold not in NOTHING:
        raise ValueError(
            f"{fold.lower()} of an array of shape {x.shape} over axes {tuple(axes)} has no elements to reduce"
        )
    value = np.asarray(NOTHING[fold] if initial is None else initial)
    return broadcast(Constant(value.astype(dtype)), result.shape)


def scattered(x: Tensor, shape: Sequence[int], coordinates: Sequence[Coordinate]) -> Tensor:
    """Add each element of a tensor to an array of zeros at the given coordinates."""
    if not x.size:
        return broadcast(Constant(np.zeros((), x.dtype)), shape)
    rows: dict[int, int] = {}
    chosen: dict[int, Lookup] = {}
    for axis, coordinate in enumerate(coordinates):
        if coordinate.lookup is not None:
            chosen[axis] = coordinate.lookup
        elif coordinate.const == 0 and len(coordinate.terms) == 1:
            ((source, factor),) = coordinate.terms
            if factor != 1 or x.shape[source] != shape[axis] or source in rows.values():
                return ScatterSum(x, shape, coordinates)
            rows[axis] = source
        else:
            return ScatterSum(x, shape, coordinates)
    covered = all(is_same(length, 1) or axis in rows.values() for axis, length in enumerate(x.shape))
    if not covered:
        return ScatterSum(x, shape, coordinates)
    order = [rows.get(axis) for axis in range(len(shape))]
    value = transposed(x, order)
    for axis, lookup in chosen.items():
        position = [lookup.axes.index(source) if source in lookup.axes else None for source in order]
        index = transposed(lookup.tensor, position)
        here: list[int | None] = [None] * len(shape)
        here[axis] = 0
        is_here = applied("EQ", "bool", index, transposed(Iota(shape[axis]), here))
        zero = Constant(np.zeros((1,) * len(shape), x.dtype))
        value = applied("Switch", x.dtype, is_here, value, zero)
    return broadcast(value, shape)


def _fold_choice(tensor: Folded) -> Tensor | None:
    """Rewrite a reduced `Switch` as a `Switch` of reductions; None if the condition varies along a reduced axis."""
    # The condition often depends on another reduction of the same elements; after rewriting, one pass can compute both
    # reductions.
    x = tensor.x
    if not isinstance(x, Mapped) or [scalar.name for scalar, _ in x.program.steps] != ["Switch"]:
        return None
    ((_, slots),) = x.program.steps
    if slots != (0, 1, 2) or any(not is_same(x.inputs[0].shape[axis], 1) for axis in tensor.axes):
        return None
    condition, *choices = x.inputs
    either = [
        folded(tensor.fold, broadcast(cast(choice, x.dtype), x.shape), tensor.axes, tensor.dtype, tensor.acc_dtype)
        for choice in choices
    ]
    kept = broadcast(transposed(condition, list(tensor.kept)), tensor.shape)
    return applied("Switch", tensor.dtype, kept, *either)


def joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenate tensors, omitting empty ones."""
    full = [part for part in parts if part.shape[axis]] or list(parts[:1])
    for part in full[1:]:
        for number, (length, first) in enumerate(zip(part.shape, full[0].shape, strict=True)):
            if number != axis and length != first:
                raise ValueError(
                    f"arrays of shapes {full[0].shape} and {part.shape} cannot be joined along axis {axis}: all "
                    "other lengths must be equal"
                )
    return full[0] if len(full) == 1 else Joined(full, axis)

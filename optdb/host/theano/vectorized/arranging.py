"""Ops that move elements: views with rearranged axes, increments of rows, and windows of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from theano.tensor.elemwise import DimShuffle
from theano.tensor.nnet.neighbours import Images2Neibs
from theano.tensor.subtensor import AdvancedIncSubtensor1

from optdb.host.api.graph import Apply
from optdb.host.theano.vectorized.registry import Compute, computes, quiet

#: The number of axes that all NumPy versions support; if there are more axes, `perform` raises an error.
_MOST_AXES = 32


@computes(DimShuffle)
def _make_view(node: Apply) -> Compute | None:
    op = node.op
    assert isinstance(op, DimShuffle)
    if len(op.new_order) > _MOST_AXES:
        return None
    order, kept = [*op.shuffle, *op.drop], len(op.shuffle)
    is_sorted = order == sorted(order)
    new_axes = tuple(None if axis == "x" else slice(None) for axis in op.new_order)

    def compute(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        array = inputs[0] if is_sorted else inputs[0].transpose(order)
        if array.ndim != kept:
            array = array.reshape(array.shape[:kept])  # raises if a dropped axis has more than one element
        storage[0][0] = array[new_axes] if new_axes else array

    return compute


@computes(AdvancedIncSubtensor1)
def _make_increment(node: Apply) -> Compute:
    op = node.op
    assert isinstance(op, AdvancedIncSubtensor1)
    in_place, sets = op.inplace, op.set_instead_of_inc

    def compute(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        x, y, indices = inputs
        out = x if in_place else x.copy()
        if sets:
            out[indices] = y
        else:
            _increment_rows(out, y, indices)
        storage[0][0] = out

    return quiet(compute)


def _increment_rows(x: np.ndarray, y: np.ndarray, indices: np.ndarray) -> None:
    rows = np.arange(len(x))[indices]  # makes negative indices positive
    values = np.broadcast_to(y, (len(rows), *x.shape[1:]))
    if not values.size:
        return
    order = rows.argsort(kind="stable")
    in_order = rows[order]
    is_first = np.ones(len(rows), bool)
    np.not_equal(in_order[1:], in_order[:-1], out=is_first[1:])
    if is_first.all():
        x[rows] += values
        return
    starts = np.flatnonzero(is_first)
    x[in_order[starts]] += np.add.reduceat(values[order], starts, axis=0)


@computes(Images2Neibs)
def _make_windows(node: Apply) -> Compute:
    op = node.op
    assert isinstance(op, Images2Neibs)
    mode = op.mode

    def compute(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        images, sizes, steps = inputs
        if min(sizes) <= 0:
            raise ValueError(f"neib_shape values <=0. Got {sizes}")
        if min(steps) <= 0:
            raise ValueError(f"neib_step wrong step ; values <= 0. Got {steps}")
        rows, columns = (_positions(*axis, mode) for axis in zip(images.shape[2:], sizes, steps, strict=True))
        windows = images[:, :, rows.clip(0)[:, None, :, None], columns.clip(0)[:, None]]
        if mode in ("half", "full"):
            windows[:, :, ((rows < 0)[:, None, :, None]) | (columns < 0)[:, None]] = 0
        count = images.shape[0] * images.shape[1] * len(rows) * len(columns)
        storage[0][0] = windows.reshape(count, int(sizes[0]) * int(sizes[1]))

    return compute


def _positions(length: int, size: int, step: int, mode: str) -> np.ndarray:
    """Return the positions that each window covers along one axis; positions in the padding are -1."""
    size, step = int(size), int(step)
    padding = {"half": size // 2, "full": size - 1, "wrap_centered": size // 2}.get(mode, 0)
    last = length - 1 if mode == "wrap_centered" else length + 2 * padding - size
    fits = mode == "ignore_borders" or (length >= size and (mode == "wrap_centered" or last % step == 0))
    if not fits or (mode == "wrap_centered" and size % 2 == 0):
        raise TypeError(f"neib_shape={size}, neib_step={step} and length {length} not consistent in mode {mode}")
    positions = np.arange(0, last + 1, step)[:, None] + np.arange(size) - padding
    if mode == "wrap_centered":
        return positions % length
    return np.where(positions < length, positions, -1).clip(-1)

"""Increments of rows with repeated indices: one sum per row, while ``np.add.at`` adds one number at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from theano.tensor.subtensor import AdvancedIncSubtensor1

from optdb.host.api.graph import Apply
from optdb.host.theano.vectorized.quiet import quiet
from optdb.host.theano.vectorized.registry import Compute, computes

__all__: list[str] = []


@computes(AdvancedIncSubtensor1)
def _make(node: Apply) -> Compute:
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
    """Add rows of `y` to the rows of `x` that `indices` selects.

    Raises
    ------
    IndexError
        If there is no such row.
    ValueError
        If `y` has other lengths.
    """
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

"""Windows of images as rows; ``perform`` copies them number by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from theano.tensor.nnet.neighbours import Images2Neibs

from optdb.host.api.graph import Apply
from optdb.host.theano.vectorized.registry import Compute, computes

__all__: list[str] = []


@computes(Images2Neibs)
def _make(node: Apply) -> Compute:
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
    """Return the positions of each window along one axis; -1 in the padding.

    Raises
    ------
    TypeError
        If windows of this size and step do not fit.
    """
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

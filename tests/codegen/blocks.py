"""Test data: block matrices, and indexes that select blocks."""

from __future__ import annotations

import numpy as np

RNG = np.random.default_rng(0)
#: Batch size; input and output blocks per example; input and output block sizes; rows and columns of blocks.
BATCH, IN, OUT, DEPTH, WIDTH, ROWS, COLUMNS = 3, 2, 4, 5, 19, 6, 7


def numbers(*shape, dtype="float32"):
    return RNG.uniform(-1, 1, shape).astype(dtype)


def indexes():
    ins = RNG.integers(-ROWS, ROWS, (BATCH, IN))
    outs = RNG.integers(-COLUMNS, COLUMNS, (BATCH, OUT)).astype("int32")
    outs[0, 1] = outs[0, 0]
    return ins, outs

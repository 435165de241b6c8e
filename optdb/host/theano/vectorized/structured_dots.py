"""Gradients of products with a sparse matrix, for all stored elements at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from theano.tensor.type import TensorType

from optdb.host.api.graph import Apply
from optdb.host.theano.vectorized.registry import Compute, computes

#: The number of elements that fit in a cache.
_BLOCK = 2**16


def _gradient(node: Apply, by_columns: bool) -> Compute | None:
    if not all(isinstance(var.type, TensorType) for var in node.inputs):
        return None

    def compute(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        indices, starts, b, top = inputs
        if b.shape[1] != top.shape[1]:
            raise ValueError(f"shapes {top.shape} and {b.shape} not aligned: other numbers of columns")
        gradient = np.zeros(len(indices), top.dtype)
        used = slice(starts[0], starts[-1])
        groups = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        rows, columns = (indices[used], groups) if by_columns else (groups, indices[used])
        _multiply_rows(gradient[used], top, rows, b, columns)
        storage[0][0] = gradient

    return compute


def _multiply_rows(out: np.ndarray, a: np.ndarray, a_rows: np.ndarray, b: np.ndarray, b_rows: np.ndarray) -> None:
    """Write the dot products of pairs of rows, summed in float64 as in the C code."""
    step = max(1, _BLOCK // max(1, a.shape[1]))
    for start in range(0, len(out), step):
        part = slice(start, start + step)
        out[part] = (a[a_rows[part]] * b[b_rows[part]]).sum(axis=1, dtype=np.result_type(out.dtype, np.float64))


for _format in ("CSC", "CSR"):
    computes(f"theano.sparse.basic.StructuredDotGrad{_format}")(partial(_gradient, by_columns=_format == "CSC"))

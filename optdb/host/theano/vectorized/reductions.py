"""Reductions over several axes at once, and reductions with scalar ops that have no NumPy ufunc."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from theano.tensor.elemwise import CAReduce

from optdb.host.api import scalars
from optdb.host.api.graph import Apply
from optdb.host.theano.vectorized.registry import Compute, computes, quiet
from optdb.host.theano.vectorized.scalar_kernels.kernels import kernel_of, known_ops

_UFUNCS: dict[type, np.ufunc] = {
    scalars.Add: np.add,
    scalars.Mul: np.multiply,
    scalars.Maximum: np.maximum,
    scalars.Minimum: np.minimum,
    scalars.AND: np.bitwise_and,
    scalars.OR: np.bitwise_or,
    scalars.XOR: np.bitwise_xor,
}

Reduction = Callable[[np.ndarray], Any]


@computes(CAReduce)
def _make(node: Apply) -> Compute | None:
    dtype = np.dtype(node.outputs[0].type.dtype)
    reduction = _reduction(node, np.dtype(getattr(node.op, "acc_dtype", None) or dtype))
    if reduction is None:
        return None

    def compute(inputs: Sequence[Any], storage: Sequence[list[Any]]) -> None:
        storage[0][0] = np.asarray(reduction(inputs[0]), dtype)

    return quiet(compute)


def _reduction(node: Apply, dtype: np.dtype) -> Reduction | None:
    op = node.op
    assert isinstance(op, CAReduce)
    dimensions = node.inputs[0].type.ndim
    axes = tuple(range(dimensions)) if op.axis is None else tuple(op.axis)
    if not axes:
        return lambda array: np.array(array, dtype)  # a copy
    ufunc = _UFUNCS.get(type(op.scalar_op))
    if ufunc is not None:
        return lambda array: ufunc.reduce(array, axes, dtype)
    if type(op.scalar_op) not in known_ops():
        return None
    return _by_halves(op, axes, dtype)


def _by_halves(op: CAReduce, axes: Sequence[int], dtype: np.dtype) -> Reduction | None:
    """Return a reduction that combines halves of an array until the axes have length 1."""
    pair = scalars.scalar_node(op.scalar_op, [dtype.name] * 2)
    kernel = kernel_of(pair)
    if kernel.dtypes != (dtype.name,) * 2 or pair.outputs[0].type.dtype != dtype.name:
        return None

    def reduce(array: np.ndarray) -> np.ndarray:
        shape = [length for axis, length in enumerate(array.shape) if axis not in axes]
        moved = np.moveaxis(array, axes, range(len(axes)))
        rows = moved.reshape(math.prod(moved.shape[: len(axes)]), *shape).astype(dtype)
        if not len(rows):
            return _identities(op, shape, dtype)
        while len(rows) > 1:
            half = len(rows) // 2
            combined = np.empty((len(rows) - half, *shape), dtype)
            kernel.function(rows[:half], rows[half : 2 * half], combined[:half])
            combined[half:] = rows[2 * half :]
            rows = combined
        return rows[0]

    return reduce


def _identities(op: CAReduce, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    if not hasattr(op.scalar_op, "identity"):
        raise ValueError(f"{op} of no elements: {op.scalar_op} has no identity")
    return np.full(shape, op.scalar_op.identity, dtype)

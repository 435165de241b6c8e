"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.math import Dot

from optdb.codegen.gemm.operations import BatchedProduct
from optdb.device.expressions import applied, broadcast, cast, folded, reshaped, transposed
from optdb.device.functions.host_parts import Value
from optdb.device.schedule.lowering import UNROLLED
from optdb.device.tensors import Constant, MatrixProduct, MatrixVector, Tensor
from optdb.pytensor.dispatch import NodeTrace, described, tensors_of
from optdb.pytensor.operations import computed

_FLOATS = ("float16", "float32", "float64")


@described.register(Dot)
def _dot(op: Dot, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    dtype = node.outputs[0].type.dtype
    return [product(*[cast(x, dtype) for x in tensors_of(inputs)])]


@described.register(BatchedDot)
def _batched_dot(op: BatchedDot, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    dtype = node.outputs[0].type.dtype
    x, y = tensors_of(inputs)
    if x.shape[0] != y.shape[0]:
        raise ValueError(f"batches of {x.shape[0]} and {y.shape[0]} matrices cannot be multiplied")
    return [batched_product(cast(x, dtype), cast(y, dtype))]


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of two matrices of one dtype; raise ValueError if their shapes do not fit."""
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"matrices of shapes {a.shape} and {b.shape} cannot be multiplied")
    rows, inner, columns = *a.shape, b.shape[1]
    dtype = a.dtype
    if not rows * inner * columns:
        return broadcast(Constant(np.zeros((), dtype)), (rows, columns))
    # A small result, or one with short sums, is fused with the nodes around it.
    if dtype not in _FLOATS or inner <= UNROLLED or rows * columns <= UNROLLED:
        terms = applied("Mul", dtype, transposed(a, [0, None, 1]), transposed(b, [None, 1, 0]))
        return folded("Add", terms, [2], dtype)
    if columns == 1:
        return reshaped(MatrixVector(a, reshaped(b, (inner,))), (rows, 1))
    if rows == 1:
        return reshaped(MatrixVector(transposed(b, [1, 0]), reshaped(a, (inner,))), (1, columns))
    return MatrixProduct(a, b).outputs[0]


def batched_product(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix products of two arrays of one dtype, whose leading axes are batch axes that broadcast."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"matrices of shapes {a.shape[-2:]} and {b.shape[-2:]} cannot be multiplied")
    (rows, inner), columns, dtype = a.shape[-2:], b.shape[-1], a.dtype
    count = int(np.prod(batch))
    shape = (*batch, rows, columns)
    if not count * rows * inner * columns:
        return broadcast(Constant(np.zeros((), dtype)), shape)
    if count == 1:
        return reshaped(product(reshaped(a, (rows, inner)), reshaped(b, (inner, columns))), shape)
    a = reshaped(broadcast(a, (*batch, rows, inner)), (count, rows, inner))
    b = reshaped(broadcast(b, (*batch, inner, columns)), (count, inner, columns))
    if dtype not in _FLOATS or inner <= UNROLLED:
        terms = applied("Mul", dtype, transposed(a, [0, 1, None, 2]), transposed(b, [0, None, 2, 1]))
        return reshaped(folded("Add", terms, [3], dtype), shape)
    return reshaped(computed(BatchedProduct, [a, b], (count, rows, columns), dtype, dtype), shape)

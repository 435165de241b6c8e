"""Matrix products, factorizations and linear systems, for one matrix or a batch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot

from optdb.codegen.gemm.operations import BatchedProduct
from optdb.codegen.linalg import operations
from optdb.codegen.operation import Operation
from optdb.device.expressions import applied, broadcast, cast, folded, reshaped, transposed, view
from optdb.device.functions.host_parts import Value
from optdb.device.schedule.lowering import UNROLLED
from optdb.device.tensors import Constant, Coordinate, MatrixProduct, MatrixVector, Tensor, spec_of
from optdb.pytensor.dispatch import OnHost, batched, described, tensors_of
from optdb.pytensor.operations import computed
from optdb.pytensor.tracing import GraphTrace
from optdb.runtime.context import Context
from optdb.runtime.sizes import broadcast_shapes, is_at_most, is_same

_FLOATS = ("float16", "float32", "float64")
#: On CPUs, batched products with at most this many terms in each sum are fused with other nodes.
_FEW_TERMS = UNROLLED // 2
#: The dtypes of integer matrices that are multiplied as matrices of another dtype.
_WIDENED = ("int8", "uint8", "int16", "uint16")
#: The dtypes of matrices that the device's matrix products support.
_MULTIPLIED = (*_FLOATS, "int32", "uint32", "int64", "uint64")


@described.register(Dot)
def _dot(op: Dot, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    dtype = node.outputs[0].type.dtype
    return [product(*[cast(x, dtype) for x in tensors_of(inputs)])]


@described.register(BatchedDot)
def _batched_dot(op: BatchedDot, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    dtype = node.outputs[0].type.dtype
    x, y = tensors_of(inputs)
    if x.shape[0] != y.shape[0]:
        raise ValueError(f"batches of {x.shape[0]} and {y.shape[0]} matrices cannot be multiplied")
    return [batched_product(cast(x, dtype), cast(y, dtype), trace.context)]


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of two matrices with the same dtype; raise ValueError if their shapes do not match."""
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"matrices of shapes {a.shape} and {b.shape} cannot be multiplied")
    rows, inner, columns = *a.shape, b.shape[1]
    dtype = a.dtype
    if not rows * inner * columns:
        return broadcast(Constant(np.zeros((), dtype)), (rows, columns))
    is_vector = is_same(rows, 1) or is_same(columns, 1)
    if dtype in _WIDENED and not is_vector:
        return cast(product(cast(a, "uint32"), cast(b, "uint32")), dtype)
    # Small products, and products with short sums, are fused with other nodes.
    is_fused = is_at_most(inner, UNROLLED) or is_at_most(rows * columns, UNROLLED)
    if is_fused or dtype not in (_FLOATS if is_vector else _MULTIPLIED):
        terms = applied("Mul", dtype, transposed(a, [0, None, 1]), transposed(b, [None, 1, 0]))
        return folded("Add", terms, [2], dtype)
    if is_same(columns, 1):
        return reshaped(MatrixVector(a, reshaped(b, (inner,))), (rows, 1))
    if is_same(rows, 1):
        return reshaped(MatrixVector(transposed(b, [1, 0]), reshaped(a, (inner,))), (1, columns))
    return MatrixProduct(a, b).outputs[0]


def batched_product(a: Tensor, b: Tensor, context: Context) -> Tensor:
    """Return the matrix products of two arrays with the same dtype; their batch axes are broadcast."""
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"matrices of shapes {a.shape[-2:]} and {b.shape[-2:]} cannot be multiplied")
    (rows, inner), columns, dtype = a.shape[-2:], b.shape[-1], a.dtype
    count = math.prod(batch)
    shape = (*batch, rows, columns)
    if not count * rows * inner * columns:
        return broadcast(Constant(np.zeros((), dtype)), shape)
    if is_same(count, 1):
        return reshaped(product(reshaped(a, (rows, inner)), reshaped(b, (inner, columns))), shape)
    if dtype in _WIDENED:
        return cast(batched_product(cast(a, "uint32"), cast(b, "uint32"), context), dtype)
    a = reshaped(broadcast(a, (*batch, rows, inner)), (count, rows, inner))
    b = reshaped(broadcast(b, (*batch, inner, columns)), (count, inner, columns))
    few = _FEW_TERMS if context.profile.runs_items_serially else UNROLLED
    if dtype not in _MULTIPLIED or is_at_most(inner, few):
        terms = applied("Mul", dtype, transposed(a, [0, 1, None, 2]), transposed(b, [0, None, 2, 1]))
        return reshaped(folded("Add", terms, [3], dtype), shape)
    return reshaped(computed(BatchedProduct, [a, b], (count, rows, columns), dtype, dtype), shape)


@batched.register(Dot)
def _dots(op: Dot, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    dtype = node.outputs[0].type.dtype
    a, b = (cast(x, dtype) for x in tensors_of(inputs))
    return [batched_product(a, b, trace.context)]


_FACTORED = ("float32", "float64")


def _float_inputs(node: Apply, inputs: Sequence[Value]) -> list[Tensor]:
    dtype = node.outputs[0].type.dtype
    if dtype not in _FACTORED:
        raise OnHost(f"matrices of {dtype} are not supported on the device")
    arrays = tensors_of(inputs)
    matrix = arrays[0]
    if matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"{node.op} takes square matrices, not an array of shape {matrix.shape}")
    return [cast(x, dtype) for x in arrays]


@described.register(Cholesky)
@batched.register(Cholesky)
def _cholesky(op: Cholesky, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    (x,) = _float_inputs(node, inputs)
    if not x.size:
        return [x]
    return [computed(operations.Cholesky, [x], x.shape, x.dtype, spec_of(x), op.lower)]


def _solved(op: Any, make: Callable[..., Operation], a: Tensor, b: Tensor) -> Tensor:
    """Return the solutions of linear systems; their batch axes are broadcast."""
    core = op.b_ndim
    if a.shape[-1] != b.shape[-core]:
        raise ValueError(f"{op} takes right-hand sides of {a.shape[-1]} rows, not of {b.shape[-core]}")
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-core])
    shape = (*batch, *b.shape[-core:])
    return computed(make, [a, b], shape, a.dtype, spec_of(a), spec_of(b), op.lower, core == 1)


@described.register(SolveTriangular)
@batched.register(SolveTriangular)
def _solve_triangular(op: SolveTriangular, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    a, b = _float_inputs(node, inputs)
    x = _solved(op, functools.partial(operations.SolveTriangular, unit_diagonal=op.unit_diagonal), a, b)
    if op.unit_diagonal or not x.size:
        return [x]
    return [_unless_singular(a, x, op.b_ndim)]


def _unless_singular(a: Tensor, x: Tensor, core: int) -> Tensor:
    """Return the solutions; like functions that call LAPACK, return NaN for each matrix with a zero on its diagonal."""
    last = a.ndim - 2
    coordinates = [Coordinate(0, ((axis, 1),)) for axis in range(last)] + [Coordinate(0, ((last, 1),))] * 2
    diagonal = view(a, (*a.shape[:-2], a.shape[-1]), coordinates)
    zero = Constant(np.zeros((1,) * diagonal.ndim, a.dtype))
    is_regular = folded("AND", applied("NEQ", "bool", diagonal, zero), [last], "bool")
    order = [None] * (x.ndim - core - is_regular.ndim) + list(range(is_regular.ndim)) + [None] * core
    nan = Constant(np.full((1,) * x.ndim, np.nan, x.dtype))
    return applied("Switch", x.dtype, transposed(is_regular, order), x, nan)


@described.register(CholeskySolve)
@batched.register(CholeskySolve)
def _cholesky_solve(op: CholeskySolve, node: Apply, inputs: Sequence[Value], trace: GraphTrace) -> list[Value]:
    return [_solved(op, operations.CholeskySolve, *_float_inputs(node, inputs))]

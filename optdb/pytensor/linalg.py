"""Factorizations of positive definite matrices, and solutions of linear systems, for one matrix or a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular

from optdb.codegen.linalg import operations
from optdb.codegen.operation import Operation
from optdb.device.expressions import applied, cast, folded, transposed, view
from optdb.device.functions.host_parts import Value
from optdb.device.tensors import Constant, Coordinate, Tensor, spec_of
from optdb.pytensor.dispatch import NodeTrace, OnHost, described, tensors_of
from optdb.pytensor.graphs import batched
from optdb.pytensor.operations import computed

_FLOATS = ("float32", "float64")


@described.register(Cholesky)
@described.register(SolveTriangular)
@described.register(CholeskySolve)
def _of_matrices(op: Any, node: Apply, inputs: Sequence[Value], trace: NodeTrace) -> list[Value]:
    return _OF_CLASS[type(op)](op, node, inputs)


@batched.register(Cholesky)
@batched.register(SolveTriangular)
@batched.register(CholeskySolve)
def _of_batches(
    core_op: Any, op: Blockwise, node: Apply, inputs: Sequence[Value], trace: NodeTrace
) -> list[Value] | None:
    return _OF_CLASS[type(core_op)](core_op, node, inputs)


def _float_inputs(node: Apply, inputs: Sequence[Value]) -> list[Tensor]:
    dtype = node.outputs[0].type.dtype
    if dtype not in _FLOATS:
        raise OnHost(f"matrices of {dtype} are not supported on the device")
    arrays = tensors_of(inputs)
    matrix = arrays[0]
    if matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"{node.op} takes square matrices, not an array of shape {matrix.shape}")
    return [cast(x, dtype) for x in arrays]


def _cholesky(op: Cholesky, node: Apply, inputs: Sequence[Value]) -> list[Value]:
    (x,) = _float_inputs(node, inputs)
    if not x.size:
        return [x]
    return [computed(operations.Cholesky, [x], x.shape, x.dtype, spec_of(x), op.lower)]


def _solved(op: Any, make: Callable[..., Operation], a: Tensor, b: Tensor) -> Tensor:
    """Return the solutions of linear systems whose batch axes broadcast."""
    core = op.b_ndim
    if a.shape[-1] != b.shape[-core]:
        raise ValueError(f"{op} takes right-hand sides of {a.shape[-1]} rows, not of {b.shape[-core]}")
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-core])
    shape = (*batch, *b.shape[-core:])
    return computed(make, [a, b], shape, a.dtype, spec_of(a), spec_of(b), op.lower, core == 1)


def _solve_triangular(op: SolveTriangular, node: Apply, inputs: Sequence[Value]) -> list[Value]:
    a, b = _float_inputs(node, inputs)
    x = _solved(op, functools.partial(operations.SolveTriangular, unit_diagonal=op.unit_diagonal), a, b)
    if op.unit_diagonal or not x.size:
        return [x]
    return [_unless_singular(a, x, op.b_ndim)]


def _unless_singular(a: Tensor, x: Tensor, core: int) -> Tensor:
    """Return solutions, all NaN for matrices with a zero on the diagonal, as the callers of LAPACK return them."""
    last = a.ndim - 2
    coordinates = [Coordinate(0, ((axis, 1),)) for axis in range(last)] + [Coordinate(0, ((last, 1),))] * 2
    diagonal = view(a, (*a.shape[:-2], a.shape[-1]), coordinates)
    zero = Constant(np.zeros((1,) * diagonal.ndim, a.dtype))
    is_regular = folded("AND", applied("NEQ", "bool", diagonal, zero), [last], "bool")
    order = [None] * (x.ndim - core - is_regular.ndim) + list(range(is_regular.ndim)) + [None] * core
    nan = Constant(np.full((1,) * x.ndim, np.nan, x.dtype))
    return applied("Switch", x.dtype, transposed(is_regular, order), x, nan)


def _cholesky_solve(op: CholeskySolve, node: Apply, inputs: Sequence[Value]) -> list[Value]:
    return [_solved(op, operations.CholeskySolve, *_float_inputs(node, inputs))]


_OF_CLASS: dict[type, Callable[[Any, Apply, Sequence[Value]], list[Value]]] = {
    Cholesky: _cholesky,
    SolveTriangular: _solve_triangular,
    CholeskySolve: _cholesky_solve,
}

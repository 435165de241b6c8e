"""Factorizations of positive definite matrices, and solutions of linear systems, single and in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular

from optdb.codegen.linalg import operations
from optdb.codegen.operation import ArraySpec, Operation
from optdb.device.functions.host_parts import Value
from optdb.device.tensors import (
    Application,
    Constant,
    Coordinate,
    Tensor,
    applied,
    broadcast,
    cast,
    folded,
    transposed,
    view,
)
from optdb.pytensor.batched import batched
from optdb.pytensor.dispatch import NodeTrace, OnHost, described, tensors_of
from optdb.runtime.context import Context

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
        raise OnHost(f"matrices of {dtype} are left to the host")
    arrays = tensors_of(inputs)
    matrix = arrays[0]
    if matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"{node.op} takes square matrices, not an array of shape {matrix.shape}")
    return [cast(x, dtype) for x in arrays]


def _spec(x: Tensor) -> ArraySpec:
    return ArraySpec(x.dtype, (False,) * x.ndim)


def _cholesky(op: Cholesky, node: Apply, inputs: Sequence[Value]) -> list[Value]:
    (x,) = _float_inputs(node, inputs)
    if not x.size:
        return [x]
    spec, lower = _spec(x), op.lower

    def make(context: Context) -> Operation:
        return operations.Cholesky(context, spec, lower)

    return [Application(make, [x], [(x.shape, x.dtype)]).outputs[0]]


def _solved(op: Any, a: Tensor, b: Tensor, make: Callable[..., Operation]) -> Tensor:
    """Return the solutions of linear systems whose batch axes broadcast."""
    core = op.b_ndim
    if a.shape[-1] != b.shape[-core]:
        raise ValueError(f"{op} takes right sides of {a.shape[-1]} rows, not of {b.shape[-core]}")
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-core])
    shape = (*batch, *b.shape[-core:])
    if not np.prod(shape):
        return broadcast(Constant(np.zeros((), a.dtype)), shape)
    return Application(make, [a, b], [(shape, a.dtype)]).outputs[0]


def _solve_triangular(op: SolveTriangular, node: Apply, inputs: Sequence[Value]) -> list[Value]:
    a, b = _float_inputs(node, inputs)
    specs, lower, vectors, unit = (_spec(a), _spec(b)), op.lower, op.b_ndim == 1, op.unit_diagonal

    def make(context: Context) -> Operation:
        return operations.SolveTriangular(context, *specs, lower, vectors, unit_diagonal=unit)

    x = _solved(op, a, b, make)
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
    a, b = _float_inputs(node, inputs)
    specs, lower, vectors = (_spec(a), _spec(b)), op.lower, op.b_ndim == 1

    def make(context: Context) -> Operation:
        return operations.CholeskySolve(context, *specs, lower, vectors)

    return [_solved(op, a, b, make)]


_OF_CLASS: dict[type, Callable[[Any, Apply, Sequence[Value]], list[Value]]] = {
    Cholesky: _cholesky,
    SolveTriangular: _solve_triangular,
    CholeskySolve: _cholesky_solve,
}

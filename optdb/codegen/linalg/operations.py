"""Operations on positive definite matrices and triangular systems, in float32 or float64.

Matrices are the last two axes of an array; the other axes are a batch, and batches broadcast. Source: Elmroth,
Gustavson, Jonsson and Kågström, "Recursive blocked algorithms and hybrid data structures for dense matrix library
software" (SIAM Review, 2004).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.gemm.products import matmul, matmul_kernels
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import size_of, view, with_axis
from optdb.codegen.linalg.blocks import (
    Stacking,
    backwards,
    broadcast_batches,
    factor_block,
    factor_kernels,
    finish,
    flat,
    launch_groups,
    leaf_rows,
    panel_kernels,
    part,
    solve_block,
    solve_kernels,
    solve_vectors,
    transposed,
    whole_kernel,
)
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array, empty, fill_zeros
from optdb.runtime.context import Context
from optdb.runtime.sizes import specialize

#: Symmetric products compute both triangles of diagonal blocks that have at most this many rows.
_SQUARE = 256
#: A symmetric product is halved after a number of rows that is a multiple of this number.
_STEP = 64


def factor(kernels: Kernels, context: Context, z: Array, info: Array, begin: int = 0) -> None:
    """Replace the lower triangles of the matrices in `z` with their factors; the rest of `z` becomes undefined.

    `info` receives `begin` plus the number of the first pivot that is not positive, if there is one.
    """
    n = specialize(z.shape[1])
    leaf = leaf_rows(context)
    if n <= leaf:
        factor_block(kernels, context, z, z, info, begin, whole=False)
        return
    half = _half(n, leaf)
    head, below, tail = part(z, (0, half), (0, half)), part(z, (half, n), (0, half)), part(z, (half, n), (half, n))
    factor(kernels, context, head, info, begin)
    solve(kernels, context, head, transposed(below), lower=True)
    _subtract_square(kernels, context, below, tail)
    factor(kernels, context, tail, info, begin + half)


def solve(kernels: Kernels, context: Context, t: Array, z: Array, lower: bool, unit: bool = False) -> None:
    """Solve triangular systems in place for a batch of right-hand sides; all systems may share one matrix in `t`."""
    if z.shape[2] == 1 and context.profile.runs_items_serially and z.strides[1] == z.dtype.itemsize:
        solve_vectors(kernels, context, t, z, lower, unit)
        return
    if z.shape[1] <= leaf_rows(context):
        ordered = (t, z) if lower else (backwards(t, True), backwards(z, False))
        solve_block(kernels, context, *ordered, unit)
        return
    n = specialize(z.shape[1])
    half = _half(n, leaf_rows(context))
    ranges = [(0, half), (half, n)]
    first, second = ranges if lower else ranges[::-1]
    solved, left = part(z, first), part(z, second)
    solve(kernels, context, part(t, first, first), solved, lower, unit)
    matmul(kernels, context, part(t, second, first), solved, left, -1.0, left, 1.0)
    solve(kernels, context, part(t, second, second), left, lower, unit)


def _subtract_square(kernels: Kernels, context: Context, a: Array, z: Array) -> None:
    """Multiply matrices by their transposes, and subtract the products from the lower triangles of `z`."""
    n = a.shape[1]
    if n <= _SQUARE:
        matmul(kernels, context, a, transposed(a), z, -1.0, z, 1.0)
        return
    half = _half(n, _STEP)
    top, bottom = part(a, (0, half)), part(a, (half, n))
    left = part(z, (half, n), (0, half))
    _subtract_square(kernels, context, top, part(z, (0, half), (0, half)))
    matmul(kernels, context, bottom, transposed(top), left, -1.0, left, 1.0)
    _subtract_square(kernels, context, bottom, part(z, (half, n), (half, n)))


def _half(n: int, block: int) -> int:
    return -(-n // block) // 2 * block


def check_dtypes(operation: Any, *specs: ArraySpec) -> None:
    """Raise TypeError unless all arrays are float32, or all are float64."""
    dtypes = dict.fromkeys(spec.dtype for spec in specs)
    if len(dtypes) > 1 or not dtypes.keys() <= {"float32", "float64"}:
        raise TypeError(f"{operation} takes arrays of float32 or float64, not of {' and '.join(dtypes)}")


def check_square(operation: Any, x: Array) -> None:
    """Raise ValueError if the matrices of an array are not square."""
    if x.shape[-2] != x.shape[-1]:
        raise ValueError(f"{operation} takes square matrices, not an array of shape {tuple(x.shape)}")


@dataclass(eq=False)
class Cholesky(Operation):
    """The triangular factors of positive definite matrices; elements outside the triangles are 0.

    The factor of a matrix that is not positive definite is filled with NaN. With `info`, a second output of int32 has a
    number for each matrix, as in LAPACK: 0, or k if the leading minor of order k is the first that is not positive.
    """

    x: ArraySpec
    #: Whether the factors are lower triangular.
    lower: bool = True
    info: bool = False

    def __post_init__(self) -> None:
        check_dtypes(self, self.x)
        self._stacking = Stacking(self.x.dtype, self.x.ndim)

    def kernels(self) -> list[Kernel]:
        dtype, context = self.x.dtype, self.context
        # Off-diagonal panels are solved with the diagonal blocks.
        recursive = [*panel_kernels(dtype, context), *matmul_kernels(dtype, context)]
        return [*factor_kernels(dtype, context), *recursive, *self._stacking.kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        (x,) = inputs
        check_square(self, x)
        out = output_array(outputs[0], self.context, x.shape, x.dtype)
        batch = x.shape[:-2]
        info = output_array(outputs[1], self.context, batch, "int32") if self.info else None
        self._factor(kernels, x, out, info)

    def _factor(self, kernels: Kernels, x: Array, out: Array, info: Array | None) -> None:
        """Set the C-contiguous `out` to the factors of the matrices in `x`, and set `info` unless it is None."""
        context, batch, n = self.context, x.shape[:-2], x.shape[-1]
        info = empty(context, (size_of(batch),), "int32") if info is None else info
        if not out.size:
            fill_zeros(info)
            return
        z = flat(out)
        ordered = z if self.lower else transposed(z)
        if n <= leaf_rows(context):
            source = self._stacking.batch(kernels, context, x, batch)
            factor_block(kernels, context, source if self.lower else transposed(source), ordered, info)
            return
        self._stacking.copy(kernels, context, x, out)
        factor(kernels, context, ordered, fill_zeros(info))
        finish(kernels, context, z, info, self.lower)


@dataclass(eq=False)
class _Solving(Operation):
    """Base class of operations that solve systems. The inputs are the matrices and the right-hand sides."""

    a: ArraySpec
    b: ArraySpec
    #: Whether the lower triangle of the matrices is read, rather than the upper one.
    lower: bool = True

    #: Whether right-hand sides are vectors along the last axis, rather than matrices in the last two axes.
    vectors: bool = False

    def __post_init__(self) -> None:
        check_dtypes(self, self.a, self.b)
        ndim = max(self.a.ndim, self.b.ndim + self.vectors)
        self._stacking = Stacking(self.a.dtype, ndim)

    def kernels(self) -> list[Kernel]:
        dtype, context = self.a.dtype, self.context
        return [*solve_kernels(dtype, context), *matmul_kernels(dtype, context), *self._stacking.kernels()]

    @abstractmethod
    def _solve(self, kernels: Kernels, t: Array, z: Array) -> None:
        """Replace the right-hand sides in `z` with the solutions of the systems with the triangular matrices in `t`."""

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        a, b = inputs
        check_square(self, a)
        b = with_axis(b, b.ndim) if self.vectors else b
        if b.shape[-2] != a.shape[-1]:
            raise ValueError(f"{self} got right-hand sides of {b.shape[-2]} rows for matrices of {a.shape[-1]} rows")
        batch = broadcast_batches(self, a.shape[:-2], b.shape[:-2])
        core = b.shape[-2:-1] if self.vectors else b.shape[-2:]
        out = output_array(outputs[0], self.context, (*batch, *core), a.dtype)
        if not out.size:
            return
        matrices = with_axis(out, out.ndim) if self.vectors else out
        self._stacking.copy(kernels, self.context, b, matrices)
        self._solve(kernels, self._stacking.batch(kernels, self.context, a, batch), flat(matrices))


@dataclass(eq=False)
class SolveTriangular(_Solving):
    """The solutions of triangular systems. Division by a 0 on a diagonal follows IEEE 754."""

    #: Whether the matrices are transposed.
    transposed: bool = False
    #: Whether the diagonals are assumed to consist of ones, and are not read.
    unit_diagonal: bool = False

    def _solve(self, kernels: Kernels, t: Array, z: Array) -> None:
        t, lower = (transposed(t), not self.lower) if self.transposed else (t, self.lower)
        solve(kernels, self.context, t, z, lower, self.unit_diagonal)


@dataclass(eq=False)
class CholeskySolve(_Solving):
    """The solutions of positive definite systems, from the Cholesky factors of their matrices."""

    def _solve(self, kernels: Kernels, t: Array, z: Array) -> None:
        lower_factor = t if self.lower else transposed(t)
        solve(kernels, self.context, lower_factor, z, lower=True)
        solve(kernels, self.context, transposed(lower_factor), z, lower=False)


#: `find_faults` in common.cl stores this number minus the index of a 0 on a diagonal.
_NONE = 2**31 - 1


def require_positive_definite(info: HostArray) -> None:
    """Raise LinAlgError if the second output of a factorization says that a matrix is not positive definite."""
    failed = np.argwhere(np.asarray(info))
    if not len(failed):
        return
    index = tuple(map(int, failed[0]))
    which = f" {index if len(index) > 1 else index[0]} of the batch" if index else ""
    raise np.linalg.LinAlgError(f"{int(info[index])}-th leading minor of the array{which} is not positive definite")


def require_finite(faults: HostArray) -> None:
    """Raise ValueError if an input has an element that is not finite."""
    if faults[0]:
        raise ValueError("array must not contain infs or NaNs")


def require_factor(faults: HostArray) -> None:
    """Raise SciPy's error for the faults that `CheckedCholesky` found, if there are any."""
    require_finite(faults)
    require_positive_definite(faults[1])


def require_solution(faults: HostArray, rows: int) -> None:
    """Raise ValueError or LinAlgError, like SciPy, for the faults that `CheckedSolveTriangular` found, if any."""
    require_finite(faults)
    if faults[1]:
        matrix, row = divmod(_NONE - int(faults[1]), rows)
        which = f" of matrix {matrix} of the batch" if matrix else ""
        raise np.linalg.LinAlgError(f"singular matrix: resolution failed at diagonal {row}{which}")


def _find(operation: Cholesky | _Solving, kernels: Kernels, x: Array, faults: Array, diagonal: bool = False) -> None:
    """Set `faults[0]` if an element is not finite; if `diagonal` is true, set `faults[1]` if a diagonal has a 0."""
    if not x.size:
        return
    x = with_axis(x, 0) if x.ndim == 1 else x
    matrices = operation._stacking.batch(kernels, operation.context, x, x.shape[:-2])
    count, n, columns = matrices.shape
    steps = [step // x.dtype.itemsize for step in matrices.strides]
    args = [n, columns, int(diagonal), matrices, *steps, faults]
    launch_groups(kernels["find_faults"], operation.context, count * n, *args)


def _no_faults(storage: list[Any], context: Context) -> Array:
    return fill_zeros(output_array(storage, context, (2,), "int32"))


@dataclass(eq=False)
class CheckedCholesky(Cholesky):
    """The Cholesky factor of one matrix, and a second output for `require_factor`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.x.ndim != 2:
            raise TypeError(f"{self} takes a matrix, not an array of {self.x.ndim} axes")

    def kernels(self) -> list[Kernel]:
        return [*super().kernels(), whole_kernel("find_faults", self.x.dtype, self.context, NONE=_NONE)]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        (x,) = inputs
        check_square(self, x)
        faults = _no_faults(outputs[1], self.context)
        _find(self, kernels, x, faults)
        out = output_array(outputs[0], self.context, x.shape, x.dtype)
        item = faults.dtype.itemsize
        self._factor(kernels, x, out, view(faults, (1,), (item,), item))


@dataclass(eq=False)
class CheckedSolveTriangular(SolveTriangular):
    """The solutions of triangular systems, and a second output for `require_solution`."""

    def kernels(self) -> list[Kernel]:
        return [*super().kernels(), whole_kernel("find_faults", self.a.dtype, self.context, NONE=_NONE)]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        super().run(inputs, outputs[:1], kernels)
        faults = _no_faults(outputs[1], self.context)
        a, b = inputs
        _find(self, kernels, a, faults, diagonal=True)
        _find(self, kernels, b, faults)

"""In-place factorization and solution, by recursion on halves: off-diagonal parts are matrix products.

References
----------
Elmroth, Gustavson, Jonsson and Kågström, "Recursive blocked algorithms and hybrid data structures for dense matrix
library software" (SIAM Review, 2004).
"""

from __future__ import annotations

from optdb.codegen.gemm.products import matmul
from optdb.codegen.linalg.batches import backwards, part, transposed
from optdb.codegen.linalg.blocks import factor_block, leaf_rows, solve_block, solve_vectors
from optdb.codegen.operation import Kernels
from optdb.runtime.arrays import Array
from optdb.runtime.context import Context
from optdb.runtime.sizes import specialize

#: The most rows of a diagonal block of a symmetric product for which both triangles are computed.
_SQUARE = 256
#: Halves of symmetric products have multiples of this many rows.
_STEP = 64


def factor(kernels: Kernels, context: Context, z: Array, info: Array, begin: int = 0) -> None:
    """Set the lower triangles of a batch of matrices to their factors; the rest of `z` becomes undefined.

    `info` gets the number of the first pivot that is not positive, offset by `begin`, if there is one.
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
    """Solve triangular systems in place for a batch of right-hand sides, which may share one triangle."""
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
    """Subtract the products of matrices with their transposes from the lower triangles of `z`."""
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
    """Return about half of a length, as a multiple of `block`."""
    return -(-n // block) // 2 * block

"""Matrix products: the kernels that a device needs, and the function that computes products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.gemm import copied, cpu, gpu, quad_tiles, tensor_cores, warpgroups
from optdb.codegen.gemm.blocks import Block, GroupBlock, ItemBlock, chosen, tuned
from optdb.codegen.gemm.families import Choice, Family, PreparedChoice, Request, prepared
from optdb.codegen.gemm.launches import GemmPlan, run, total_kernel
from optdb.codegen.gemm.problem import Precision, Problem, check, classify, kernel_dtype, steps
from optdb.codegen.kernels import Kernel
from optdb.codegen.operation import Kernels
from optdb.codegen.source import load_w, work_dtype
from optdb.runtime import clblast
from optdb.runtime.arrays import Array
from optdb.runtime.dispatch import tracing

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Alignment, in bytes, of matrices that are read four numbers at a time.
_ALIGNMENT = 16


def matmul_kernels(dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels that `matmul` launches for matrices of floats, or of integers of 32 or 64 bits."""
    dtype = kernel_dtype(dtype)
    return kernels_of(set(chosen(context, dtype).values()), dtype, context)


def kernels_of(blocks: set[Block], dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels for a set of block shapes."""
    ordered = sorted(blocks, key=lambda block: block.name)
    # All blocks on a device are of the same kind.
    tiles = [gpu.tile_kernel(dtype, block) for block in ordered if isinstance(block, GroupBlock)]
    if tiles:
        return [*tiles, total_kernel(dtype)]
    widths = sorted({side for block in ordered for side in (block.rows, block.cols)})
    multiplying = [cpu.block_kernel(dtype, block) for block in ordered if isinstance(block, ItemBlock)]
    return [*multiplying, total_kernel(dtype), *(cpu.pack_kernel(dtype, width) for width in widths)]


def matmul(
    kernels: Kernels,
    context: Context,
    a: Array,
    b: Array,
    z: Array,
    alpha: float = 1,
    y: Array | None = None,
    beta: float = 0,
    precision: Precision = "highest",
) -> None:
    """Set `z` to ``alpha * dot(a, b) + beta * y``, for each matrix of a batch if the arrays have three dimensions.

    The kernels come from `matmul_kernels`. All arrays have the same dtype; their strides are arbitrary. The arrays are
    matrices, or batches of matrices along the first dimension; a batch of one matrix is broadcast. `z` may be `y`, but
    must not share memory with `a` or `b`; `y` is not read if `beta` is 0. Below the highest precision, a device may
    compute float32 products on tensor cores.

    Raises
    ------
    ValueError
        If the shapes do not match.
    """
    add = y is not None and beta != 0
    y = z if y is None or beta == 0 else y
    check(a.shape, b.shape, y.shape if add else None, z.shape)
    if not z.size:
        return
    batch = z.shape[0] if z.ndim == 3 else 1
    (m, k), n = a.shape[-2:], b.shape[-1]
    problem = Problem(batch, m, n, k, steps(a, batch), steps(b, batch), steps(y, batch), steps(z, batch), add)
    _, row, column = problem.z
    # A column-major result is computed as its transpose.
    if is_transposed := column != 1 and row == 1 and m > 1:
        problem = problem.transposed()
    # An exported file contains only the kernels of its functions.
    families = FAMILIES if tracing() is None else (_own_tiles,)
    is_aligned = families is FAMILIES and a.offset % _ALIGNMENT == b.offset % _ALIGNMENT == 0
    request = Request(problem, kernel_dtype(z.dtype.name), precision, is_transposed, is_aligned)
    arrays = {"a": a, "b": b, "y": y, "z": z}
    failed: tuple[str, ...] = ()
    while True:
        product = prepared(families, context, request, failed, owner=chosen(context, request.dtype))
        if compute(product, request, kernels, context, arrays, alpha, beta if add else 0):
            return
        failed += (product.name,)


def compute(
    product: PreparedChoice[GemmPlan | None],
    request: Request,
    kernels: Kernels,
    context: Context,
    arrays: Mapping[str, Array],
    alpha: float,
    beta: float,
) -> bool:
    """Compute a product with a prepared choice; if this fails, return False and leave the result unchanged."""
    a, b, y, z = (arrays[letter] for letter in "abyz")
    if product.plan is None:
        return (beta == 0 or y is z) and clblast.multiply(context.queue, a, b, z, alpha, beta)
    if request.is_transposed:
        arrays = {**arrays, "a": b, "b": a}
    own = kernels if product.kernels is None else product.kernels
    try:
        run(product.plan, own, context, arrays, alpha, beta)
    except MemoryError:
        if product.plan.copies:
            return False
        raise
    return True


def _library(context: Context, request: Request) -> list[Choice[GemmPlan | None]]:
    """Return CLBlast, as a choice without a plan, if it was faster when products of this class were tuned."""
    p = request.problem
    name = classify(p.batch, p.m, p.n, context.profile.compute_units)
    return [Choice("CLBlast", None)] if name in tuned(context, request.dtype).library else []


def _own_tiles(context: Context, request: Request) -> list[Choice[GemmPlan | None]]:
    """Return the choice that uses the kernels compiled with the function."""
    return [Choice("tiles", plan_with(chosen(context, request.dtype), context, request.dtype, request.problem))]


#: Kernel families, in the order in which they are tried.
FAMILIES: tuple[Family[GemmPlan | None], ...] = (
    quad_tiles.choices,
    warpgroups.choices,
    tensor_cores.choices,
    _library,
    copied.choices,
    _own_tiles,
)


def plan_with(blocks: Mapping[str, Block], context: Context, dtype: str, problem: Problem) -> GemmPlan:
    """Return a plan for a product; `blocks` maps each class to its block shape."""
    units = context.profile.compute_units
    name = classify(problem.batch, problem.m, problem.n, units)
    block = blocks[name]
    if isinstance(block, ItemBlock) and name == "narrow" and problem.n > block.cols:
        block = blocks["square"]  # several narrow panels take longer than one that is wider
    if isinstance(block, GroupBlock):
        block = gpu.block_of(blocks, problem, units)
        return gpu.plan(problem, block, units)
    assert isinstance(block, ItemBlock)  # all blocks of a device are of one class
    item = np.dtype(work_dtype(dtype)).itemsize
    return cpu.plan(problem, block, units, load_w(dtype) != "", item)

"""Products of matrices: the kernels that a device needs for them, and the function that computes one.

See the package for how the data flows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.gemm import copied, cpu, gpu, quad_tiles, tensor_cores
from optdb.codegen.gemm.blocks import Block, GroupBlock, ItemBlock, by_library, chosen
from optdb.codegen.gemm.launches import GemmPlan, run, total_kernel, wide_total_kernel
from optdb.codegen.gemm.problem import Problem, check, classify, steps
from optdb.codegen.kernels import CompiledKernel, Kernel
from optdb.codegen.kernels.launching import LaunchCache
from optdb.codegen.source import load_w, work_dtype
from optdb.runtime import clblast
from optdb.runtime.arrays import Array
from optdb.runtime.commands import tracing

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Plans in the cache of a context.
_REMEMBERED = 1024


def matmul_kernels(dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels that `matmul` takes for matrices of float16, float32 or float64."""
    return kernels_of(set(chosen(context, dtype).values()), dtype, context)


def kernels_of(blocks: set[Block], dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels for some block shapes."""
    ordered = sorted(blocks, key=lambda block: block.name)
    # A device has blocks of one kind.
    tiles = [gpu.tile_kernel(dtype, block) for block in ordered if isinstance(block, GroupBlock)]
    if tiles:
        return [*tiles, wide_total_kernel(dtype)]
    widths = sorted({side for block in ordered for side in (block.rows, block.cols)})
    multiplying = [cpu.block_kernel(dtype, block) for block in ordered if isinstance(block, ItemBlock)]
    return [*multiplying, total_kernel(dtype), *(cpu.pack_kernel(dtype, width) for width in widths)]


def matmul(
    kernels: Mapping[str, CompiledKernel],
    context: Context,
    a: Array,
    b: Array,
    z: Array,
    alpha: float = 1.0,
    y: Array | None = None,
    beta: float = 0.0,
    precision: tensor_cores.Precision = "highest",
) -> None:
    """Set `z` to ``alpha * dot(a, b) + beta * y``, or, in three dimensions, do so for each matrix of it.

    The kernels are those of `matmul_kernels`. Arrays have one dtype, and any strides: matrices, or batches of them,
    which the first dimension counts; of two batches, one may have a single matrix, that all products share. `z` may be
    `y`, and must not share memory with `a` or `b`; `y` is not read where `beta` is 0. Below the highest precision, a
    device with tensor cores may compute float32 by these.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    add = y is not None and beta != 0
    y = z if y is None or beta == 0 else y
    check(a.shape, b.shape, y.shape if add else None, z.shape)
    if not z.size:
        return
    batch = z.shape[0] if z.ndim == 3 else 1
    (m, k), n = a.shape[-2:], b.shape[-1]
    problem = Problem(batch, m, n, k, steps(a, batch), steps(b, batch), steps(y, batch), steps(z, batch), add)
    dtype = z.dtype.name
    if tracing() is None and quad_tiles.multiply(context, problem, a, b, y, z, alpha, beta, precision):
        return
    if tracing() is None and tensor_cores.multiply(context, problem, a, b, y, z, alpha, beta, precision):
        return
    if tracing() is None and by_library(context, dtype) and _by_library(context, problem, a, b, y, z, alpha, beta):
        return
    planned, turned = _planned(context, dtype, problem)
    if _may_be_copied(context, dtype, planned) and copied.multiply(context, problem, a, b, y, z, alpha, beta):
        return
    arrays = {"a": b, "b": a, "y": y, "z": z} if turned else {"a": a, "b": b, "y": y, "z": z}
    run(planned, kernels, context, arrays, alpha, beta, work_dtype(dtype))


def _may_be_copied(context: Context, dtype: str, planned: GemmPlan) -> bool:
    """Tell whether a product is one of float32 by large tiles, on a device that can copy tiles in the background.

    Their kernels have the instructions of one vendor's devices, so none is written to a file.
    """
    if dtype != "float32" or tracing() is not None or not context.profile.has_tensor_cores:
        return False
    return copied.takes(context, planned.launches[0].kernel)


def _by_library(
    context: Context, problem: Problem, a: Array, b: Array, y: Array, z: Array, alpha: float, beta: float
) -> bool:
    """Compute a product by CLBlast, if it supports it and tuning found it to be faster; return whether it did."""
    name = classify(problem.batch, problem.m, problem.n, context.profile.compute_units)
    if name not in by_library(context, z.dtype.name) or (problem.add and y is not z):
        return False
    return clblast.multiply(context.queue, a, b, z, alpha, beta if problem.add else 0.0)


def _planned(context: Context, dtype: str, problem: Problem) -> tuple[GemmPlan, bool]:
    """Return the plan of a product, and whether it is that of the matrices turned over."""
    plans: LaunchCache[tuple[GemmPlan, bool]] = context.kept.setdefault(__name__, LaunchCache(_REMEMBERED))
    blocks = chosen(context, dtype)
    return plans.get((dtype, problem), lambda: plan_with(blocks, context, dtype, problem), owner=blocks)


def plan_with(blocks: Mapping[str, Block], context: Context, dtype: str, problem: Problem) -> tuple[GemmPlan, bool]:
    """Return a plan that uses one of some block shapes, by class, and whether the matrices are turned over for it."""
    turned = _better_turned(problem)
    problem = problem.turned() if turned else problem
    units = context.profile.compute_units
    name = classify(problem.batch, problem.m, problem.n, units)
    block = blocks[name]
    if isinstance(block, GroupBlock):
        # Long sums can be cut into parts: so larger tiles, which read less, give all units work, too.
        larger = blocks["square"]
        assert isinstance(larger, GroupBlock)  # a device has blocks of one kind
        block = larger if name == "small" and gpu.fills(problem, larger, units) else block
        return gpu.plan(problem, block, units), turned
    item = np.dtype(work_dtype(dtype)).itemsize
    return cpu.plan(problem, block, units, load_w(dtype) != "", item), turned


def _better_turned(problem: Problem) -> bool:
    """Tell whether rows are better taken for columns: where the result lies column by column."""
    _, row, column = problem.z
    return column != 1 and row == 1 and problem.m > 1

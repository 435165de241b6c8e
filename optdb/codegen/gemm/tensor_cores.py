"""Products of matrices on a GPU's tensor cores, for functions that ask for less than float32's precision.

Numbers of float32 are rounded to TF32, which has float32's exponent and ten bits after the point. Precision ``default``
multiplies these, ``high`` divides each number into two of them and multiplies three times. Numbers of float16 are
multiplied as they are. Sums are float32's. `optdb.codegen.gemm.tensor_kernels` writes the kernels, which are compiled
when the first product of their kind is computed.

References
----------
Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak
performance" (2022).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from optdb.codegen.gemm import packed_speeds, warpgroups
from optdb.codegen.gemm.launches import GemmPlan, PreparedProduct, by_tiles, run_prepared, wide_total_kernel
from optdb.codegen.gemm.problem import FEW, Problem, classify
from optdb.codegen.gemm.tensor_kernels import Arithmetic, TensorBlock, dtype_of, kernel_name, tensor_kernel
from optdb.codegen.gemm.tensor_rates import fits, rates_of
from optdb.codegen.kernels import try_compile
from optdb.codegen.kernels.launching import LaunchCache

if TYPE_CHECKING:
    from optdb.runtime.arrays import Array
    from optdb.runtime.context import Context

#: How exact products of float32 are, as of the flag ``optdb.matmul_precision``.
Precision = Literal["highest", "high", "default"]
#: The arithmetic by the dtype of the matrices and the precision.
ARITHMETIC: dict[tuple[str, Precision], Arithmetic] = {
    ("float32", "default"): "tf32",
    ("float32", "high"): "tf32x3",
    ("float16", "default"): "float16",
    ("float16", "high"): "float16",
}
#: Terms of a part of a sum, at least: adding up takes a launch of its own.
PART = 1024
#: Of products that tensor cores do not gain anything from: of so few terms.
FEW_TERMS = 16
_CONSEQUENCE = "Products take tiles of another shape, or are of the highest precision"
#: Prepared products in the cache of a context.
_REMEMBERED = 1024
#: The block for each class of products, and whether numbers are divided into two. Measured on NVIDIA H100 and H200.
_BLOCKS = {
    ("square", False): TensorBlock(128, 128, 16, 3, 64, 64),
    ("small", False): TensorBlock(64, 64, 32, 3, 32, 32),
    ("tiny", False): TensorBlock(32, 32, 32, 3, 16, 16),
    ("square", True): TensorBlock(64, 64, 32, 3, 32, 32),
    ("small", True): TensorBlock(64, 64, 32, 3, 32, 32),
    ("tiny", True): TensorBlock(64, 64, 32, 3, 32, 32),
}

#: How fast a unit multiplies numbers of float16 with a group on it, and with two, as of `tensor_rates`. Of an H200.
_FLOAT16_RATES = (1.8, 2.8)


def multiply(
    context: Context,
    problem: Problem,
    a: Array,
    b: Array,
    y: Array,
    z: Array,
    alpha: float,
    beta: float,
    precision: Precision,
) -> bool:
    """Compute a product by tensor cores, if precision and device suit it; return whether it did."""
    arithmetic = ARITHMETIC.get((z.dtype.name, precision))
    if arithmetic is None or not (_suits(context, problem) or packed_speeds.packs_all(context)):
        return False
    cache = context.kept.setdefault(__name__, LaunchCache(_REMEMBERED))
    prepared = cache.get((context.options, arithmetic, problem), lambda: _prepared(context, problem, arithmetic))
    return run_prepared(prepared, context, a, b, y, z, alpha, beta)


def _suits(context: Context, problem: Problem) -> bool:
    """Tell whether a device has tensor cores, and a product gains by them."""
    is_small = min(problem.m, problem.n) <= FEW or problem.k < FEW_TERMS
    return context.profile.has_tensor_cores and not is_small


def _prepared(context: Context, problem: Problem, arithmetic: Arithmetic) -> PreparedProduct | None:
    """Return what a product takes; None if the device cannot compute it by tensor cores."""
    profile = context.profile
    is_turned = problem.z[2] != 1 and problem.z[1] == 1
    problem = problem.turned() if is_turned else problem
    if _is_packed(context, problem, arithmetic):
        packed = warpgroups.kernels(context, arithmetic)
        if packed is not None:
            planned = warpgroups.plan(problem, arithmetic, warpgroups.block_of(context))
            return PreparedProduct(planned, packed, is_turned)
    if not _suits(context, problem):
        return None
    for block in _blocks_for(context, problem, arithmetic):
        if not fits(context, block):
            continue
        needed = [tensor_kernel(block, arithmetic, problem.along, context.options.instructions)]
        needed.append(wide_total_kernel(dtype_of(arithmetic)))
        kernels = try_compile(needed, context, f"a product by {arithmetic}", _CONSEQUENCE)
        if kernels is not None:
            return PreparedProduct(plan(problem, block, arithmetic, profile.compute_units), kernels, is_turned)
    return None


def _blocks_for(context: Context, problem: Problem, arithmetic: Arithmetic) -> list[TensorBlock]:
    """Return the shapes of the tiles that compute a product on a device, the quickest one first."""
    units = context.profile.compute_units
    name = classify(problem.batch, problem.m, problem.n, units)
    if arithmetic == "tf32" and name != "tiny":
        rates = rates_of(context)
        return sorted(rates, key=lambda block: _effort(problem, block, rates[block], units))
    # Pieces of float16 are exchanged among eight in each row.
    name = "small" if name == "tiny" and arithmetic == "float16" else name
    return [_BLOCKS[name, arithmetic == "tf32x3"]]


def _is_packed(context: Context, problem: Problem, arithmetic: Arithmetic) -> bool:
    """Tell whether a product is quicker by packed matrices than by tiles that are copied from where they lie."""
    if not packed_speeds.suits(context, problem, arithmetic):
        return False
    if packed_speeds.packs_all(context):
        return True
    units = context.profile.compute_units
    rates = rates_of(context) if arithmetic == "tf32" else {_BLOCKS["square", False]: _FLOAT16_RATES}
    effort = min((_effort(problem, block, rates[block], units) for block in rates), default=math.inf)
    return packed_speeds.seconds(context, problem, arithmetic) < 2e-12 * problem.k * effort


def _effort(problem: Problem, block: TensorBlock, rates: Sequence[float], units: int) -> float:
    """Return how long the unit with the most tiles computes, for each term of the sums."""
    rounds, rest = divmod(-(-problem.tiles(block.rows, block.cols) // units), len(rates))
    last = rest / rates[rest - 1] if rest else 0.0
    return block.rows * block.cols * (rounds * len(rates) / rates[-1] + last)


def plan(problem: Problem, block: TensorBlock, arithmetic: Arithmetic, units: int) -> GemmPlan:
    """Return the launches that compute a product by tiles, on a device of `units` compute units."""
    tiles = problem.tiles(block.rows, block.cols)
    parts = max(min(-(-units // tiles), problem.k // PART), 1)
    # Parts of aligned rows stay aligned.
    terms = block.depth * (2 if arithmetic == "float16" else 1)
    return by_tiles(problem, kernel_name(block, arithmetic, problem.along), tiles, block.items, parts, terms)

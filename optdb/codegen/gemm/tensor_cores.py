"""Matrix products on a GPU's tensor cores, for functions that request less than float32's precision.

Float32 numbers are rounded to TF32, which has ten bits of mantissa. Precision ``high`` splits each float32 number into
two TF32 numbers and multiplies three times. Sums are accumulated in float32.

References
----------
Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak
performance" (2022).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from optdb.codegen.gemm.families import Choice, Request
from optdb.codegen.gemm.launches import GemmPlan, by_tiles, total_kernel
from optdb.codegen.gemm.problem import FEW, Problem, classify
from optdb.codegen.gemm.tensor_kernels import (
    ARITHMETIC,
    FEW_TERMS,
    Arithmetic,
    TensorBlock,
    dtype_of,
    kernel_name,
    tensor_kernel,
)
from optdb.codegen.gemm.tuning_table import measured
from optdb.codegen.kernels import Kernel

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Minimum number of terms in a part of a sum; adding the parts takes another launch.
PART = 1024
#: Block shape for each class of products. Measured on an NVIDIA H100 and an H200.
_BLOCKS = {
    "square": TensorBlock(128, 128, 16, 3, 64, 64),
    "small": TensorBlock(64, 64, 32, 3, 32, 32),
    "tiny": TensorBlock(32, 32, 32, 3, 16, 16),
}

#: The class for TF32 tiles in the tuning table. Its entries are `Rates`.
TILES = "tf32 tiles"
#: Throughput of a compute unit with one resident work group, with two, and so on, in 1e12 operations per second. The
#: length of each sequence is the number of work groups that fit on a unit.
Rates = Mapping[TensorBlock, Sequence[float]]
#: Rates on an NVIDIA H200, except for the first one, which was measured on an H100. Tiles with 32 terms take 96 or 64
#: KiB of local memory.
DEFAULTS: Rates = {
    TensorBlock(128, 128, 32, 3, 64, 64): (1.05, 1.7),
    TensorBlock(128, 128, 32, 2, 64, 64): (1.05, 1.67),
    TensorBlock(128, 128, 16, 3, 64, 64): (1.0, 1.59),
    TensorBlock(128, 64, 16, 4, 64, 32): (0.72, 1.08, 1.22, 1.35),
    TensorBlock(64, 64, 32, 3, 64, 32): (0.55, 0.98, 1.1, 1.24),
}
#: The tile shapes that tuning measures.
CANDIDATES = (
    *DEFAULTS,
    TensorBlock(128, 128, 16, 3, 64, 32),
    TensorBlock(64, 128, 16, 4, 32, 64),
    TensorBlock(64, 64, 32, 3, 32, 32),
)
#: Float16 rates for one and for two work groups per compute unit, on an NVIDIA H200.
_FLOAT16_RATES = (1.8, 2.8)


def choices(context: Context, request: Request) -> list[Choice[GemmPlan]]:
    """Return a choice per tile shape; empty if a product does not benefit from tensor cores."""
    arithmetic = ARITHMETIC.get((request.dtype, request.precision))
    if arithmetic is None:
        return []
    # Small products do not benefit from tensor cores.
    problem, units = request.problem, context.profile.compute_units
    if not context.profile.has_tensor_cores or min(problem.m, problem.n) <= FEW or problem.k < FEW_TERMS:
        return []
    rates = {_BLOCKS["square"]: _FLOAT16_RATES} if arithmetic == "float16" else rates_of(context)
    efforts = {block: _effort(problem, block, rates[block], units) for block in rates}
    name = classify(problem.batch, problem.m, problem.n, units)
    if arithmetic != "tf32" or name == "tiny":
        # The float16 swizzle permutes eight pieces in each row.
        is_small = arithmetic == "tf32x3" or (arithmetic == "float16" and name == "tiny")
        efforts = {_BLOCKS["small" if is_small else name]: min(efforts.values(), default=math.inf)}

    def kernels(block: TensorBlock) -> list[Kernel]:
        multiply = tensor_kernel(block, arithmetic, problem.along, context.options.instructions)
        return [multiply, total_kernel(dtype_of(arithmetic))]

    return [
        Choice(
            f"a product by {arithmetic}, {block.name}",
            plan(problem, block, arithmetic, units),
            2e-12 * problem.k * efforts[block],
            functools.partial(kernels, block),
        )
        for block in fitting(context, efforts)
    ]


def rates_of(context: Context) -> Rates:
    """Return the measured or default rates of the tile shapes that fit a device."""
    found = measured(context, TILES)
    rates = {block: found[block.name] for block in CANDIDATES if block.name in found}
    return {block: rates[block] for block in fitting(context, rates)} or {
        block: DEFAULTS[block] for block in fitting(context, DEFAULTS)
    }


def fitting(context: Context, blocks: Iterable[TensorBlock]) -> list[TensorBlock]:
    """Return the blocks whose work-group size and local memory a device supports."""
    profile = context.profile
    most_items, most_bytes = profile.max_local_size, profile.most_local_bytes
    return [block for block in blocks if block.items <= most_items and block.local_bytes <= most_bytes]


def _effort(problem: Problem, block: TensorBlock, rates: Sequence[float], units: int) -> float:
    """Return the estimated time per term on the compute unit with the most tiles."""
    rounds, rest = divmod(-(-problem.tiles(block) // units), len(rates))
    last = rest / rates[rest - 1] if rest else 0.0
    return block.rows * block.cols * (rounds * len(rates) / rates[-1] + last)


def plan(problem: Problem, block: TensorBlock, arithmetic: Arithmetic, units: int) -> GemmPlan:
    """Return the launches that compute a product with tiles, on a device with `units` compute units."""
    parts = max(min(-(-units // problem.tiles(block)), problem.k // PART), 1)
    # The length of a part is a multiple of this number, so that rows that are aligned remain aligned in each part.
    terms = block.depth * (2 if arithmetic == "float16" else 1)
    return by_tiles(problem, kernel_name(block, arithmetic, problem.along), block, parts, terms)

"""Matrix products on a GPU: the kernel, and the division of a product into launches.

A work group loads tiles of both matrices into local memory, double-buffered, and each item keeps its sums in registers
(Volkov and Demmel, "Benchmarking GPUs to tune dense linear algebra", 2008; Nath, Tomov and Dongarra, "An improved Magma
gemm for Fermi GPUs", 2010). Strides are arbitrary. If a result has too few tiles to occupy all compute units, its sums
are split into parts, and a second launch adds the partial sums.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from optdb.codegen.gemm.blocks import PADDING, Block, GroupBlock
from optdb.codegen.gemm.launches import GemmPlan, by_tiles, product_kernel
from optdb.codegen.gemm.problem import Problem, classify
from optdb.codegen.gemm.tensor_cores import BAND, with_tile_found
from optdb.codegen.kernels import Kernel
from optdb.codegen.scalars.types import C_TYPES
from optdb.codegen.source import functions, work_dtype

#: Size of an item's vector loads from local memory, in bytes.
_READ = 16
#: Minimum number of terms in each part of a split sum.
PART = 256
#: `MOST_PARTS` is the maximum number of parts per tile, unless there are far fewer tiles than compute units. Splitting
#: pays off, despite the second launch, if the time with parts is less than `GAIN` times the time without parts. Among
#: the numbers of parts whose times are within the factor `ENOUGH` of the shortest time, the smallest is used.
MOST_PARTS, GAIN, ENOUGH = 8, 0.9, 1.05
#: The fraction of compute units that larger blocks must occupy to be used for a small product.
MOST_UNITS = 0.75


def tile_kernel(dtype: str, block: GroupBlock) -> Kernel:
    """Return the kernel that multiplies matrices in tiles of one shape."""
    wide = _READ // np.dtype(work_dtype(dtype)).itemsize
    a_read, b_read = min(wide, block.item_rows), min(wide, block.item_cols)
    words = {**block.words(), "MATMUL": block.name, "PADDING": PADDING, "A_READ": a_read, "B_READ": b_read}
    vector = _vector(dtype, block)
    down, right = block.rows // block.item_rows, block.cols // block.item_cols
    column, row = item_position(down, right)
    return product_kernel(
        with_tile_found(functions("gemm/gpu.cl")["MATMUL"]),
        dtype,
        **words,
        BAND=BAND,
        ITEM_COLUMN=column,
        ITEM_ROW=row,
        A_LOADS=block.rows * block.depth // block.items // vector,
        B_LOADS=block.cols * block.depth // block.items // vector,
        A_TURNS=max(block.rows // vector // block.items, 1),
        B_TURNS=max(block.cols // vector // block.items, 1),
        VECTOR=vector,
        WORDS=f"{C_TYPES[dtype]}{vector}",
        VLOAD=f"vload{vector}",
        VSTORE=f"vstore{vector}",
        READ_A=_read("x[into]", "left", "r", "ty", a_read, down, dtype),
        READ_B=_read("v[into]", "right", "c", "tx", b_read, right, dtype),
        STORES_WHOLE=int(dtype == work_dtype(dtype) and b_read > 1),
        STORED=f"{C_TYPES[dtype]}{b_read}",
        STORED_VLOAD=f"vload{b_read}",
    )


def item_position(down: int, right: int) -> tuple[str, str]:
    """Return expressions for an item's column and row in a grid of `down` by `right` items.

    32 neighbouring items form a rectangle, so that they read few distinct numbers from local memory at once.
    """
    if down % 4 or right % 8:
        return f"item % {right}", f"item / {right}"
    across = right // 8
    column = f"item / 32 % {across} * 8 + item % 16 / 2"
    return column, f"item / {32 * across} * 4 + item % 32 / 16 * 2 + item % 2"


def _vector(dtype: str, block: GroupBlock) -> int:
    """Return how many numbers an item loads at once when it reads a tile."""
    if dtype != work_dtype(dtype):
        return 1
    loads = min(block.rows, block.cols) * block.depth // block.items
    return min(_READ // np.dtype(dtype).itemsize, loads, block.depth, block.rows, block.cols)


def _read(to: str, tile: str, index: str, position: str, width: int, items: int, dtype: str) -> str:
    """Return code that reads `width` numbers of a tile's row; neighbouring items read neighbouring vectors."""
    at = f"{tile}[side][term][{index} / {width} * {items * width} + {position} * {width}]"
    if width == 1:
        return f"{to}[{index}] = {at}"
    vector = f"{C_TYPES[work_dtype(dtype)]}{width}"
    return f"vstore{width}(*(__local const {vector} *)&{at}, 0, {to} + {index})"


def block_of(blocks: Mapping[str, Block], problem: Problem, units: int) -> GroupBlock:
    """Return the block shape for a product; small products with long sums get larger blocks, to reduce reads."""
    name = classify(problem.batch, problem.m, problem.n, units)
    block, larger = blocks[name], blocks["square"]
    assert isinstance(block, GroupBlock) and isinstance(larger, GroupBlock)  # all blocks of a device are of one class
    groups = problem.tiles(larger) * max(min(problem.k // PART, MOST_PARTS), 1)
    return larger if name == "small" and groups >= MOST_UNITS * units else block


def plan(problem: Problem, block: GroupBlock, units: int) -> GemmPlan:
    """Return the launches that compute a product with tiles, on a device with `units` compute units."""
    return by_tiles(problem, block.name, block, parts_of(problem, block, units))


def parts_of(problem: Problem, block: GroupBlock, units: int) -> int:
    """Return the number of parts into which to split sums so that compute units are rarely idle.

    On 132 compute units, 100 tiles take as long as 132 tiles, but splitting each of the 100 tiles into five parts takes
    four fifths of that time.
    """
    tiles = problem.tiles(block)
    most = max(problem.k // PART, 1)
    if tiles * MOST_PARTS <= units:
        return max(min(units // tiles, most), 1)

    def rounds(parts: int) -> float:
        return -(-tiles * parts // units) / parts

    counts = range(1, min(most, MOST_PARTS) + 1)
    least = min(map(rounds, counts))
    return next(parts for parts in counts if rounds(parts) <= ENOUGH * least) if least < GAIN * rounds(1) else 1


def fill(problem: Problem, block: GroupBlock, units: int) -> float:
    """Return the average fraction of compute units that are busy until the last unit finishes."""
    groups = problem.tiles(block) * parts_of(problem, block, units)
    return groups / (-(-groups // units) * units)

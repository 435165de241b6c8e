"""Products of matrices on a GPU: the kernel, and how a product is cut into launches.

A work group computes a tile of the result. It loads tiles of both matrices into local memory, the next ones while it
computes with those before, and each item keeps its part of the sums in registers (Volkov and Demmel, "Benchmarking GPUs
to tune dense linear algebra", 2008; Nath, Tomov and Dongarra, "An improved Magma gemm for Fermi GPUs", 2010). Strides
are free: neighbouring items load neighbouring elements, along the rows of a matrix or along its columns. Rows and
columns beyond the last are the last one again while they are read, and are not stored. An item loads vectors where the
numbers of a matrix are neighbours and aligned, and stores them where those of the result are.

There is one launch, or, where a result has too few tiles to give all units work, one that adds up parts of the sums
and another that adds up the parts.
"""

from __future__ import annotations

import numpy as np

from optdb.codegen.gemm.blocks import PADDING, GroupBlock
from optdb.codegen.gemm.launches import GemmPlan, Launch, pack, product_kernel, total
from optdb.codegen.gemm.problem import Problem
from optdb.codegen.kernels import Kernel
from optdb.codegen.scalars.types import C_TYPES
from optdb.codegen.source import functions, work_dtype

#: Bytes that an item reads from local memory at once.
_READ = 16
#: Terms of a part, at least.
PART = 256
#: Items of a group that adds up parts.
TOTAL = 64


def tile_kernel(dtype: str, block: GroupBlock) -> Kernel:
    """Return the kernel that multiplies by tiles of one shape."""
    wide = _READ // np.dtype(work_dtype(dtype)).itemsize
    a_read, b_read = min(wide, block.item_rows), min(wide, block.item_cols)
    vector = _vector(dtype, block)
    down, right = block.rows // block.item_rows, block.cols // block.item_cols
    place_x, place_y = _place(down, right)
    return product_kernel(
        functions("gemm/gpu.cl")["MATMUL"],
        dtype,
        MATMUL=block.name,
        ITEMS=block.items,
        ROWS=block.rows,
        COLS=block.cols,
        DEPTH=block.depth,
        PADDING=PADDING,
        ITEM_ROWS=block.item_rows,
        ITEM_COLS=block.item_cols,
        PLACE_X=place_x,
        PLACE_Y=place_y,
        A_LOADS=block.rows * block.depth // block.items // vector,
        B_LOADS=block.cols * block.depth // block.items // vector,
        A_TURNS=max(block.rows // vector // block.items, 1),
        B_TURNS=max(block.cols // vector // block.items, 1),
        VECTOR=vector,
        WORDS=f"{C_TYPES[dtype]}{vector}",
        VLOAD=f"vload{vector}",
        VSTORE=f"vstore{vector}",
        A_READ=a_read,
        B_READ=b_read,
        READ_A=_read("x", "left", "r", "ty", a_read, down, dtype),
        READ_B=_read("v", "right", "c", "tx", b_read, right, dtype),
        STORES_WHOLE=int(dtype == work_dtype(dtype) and b_read > 1),
        STORED=f"{C_TYPES[dtype]}{b_read}",
        STORED_VLOAD=f"vload{b_read}",
    )


def _place(down: int, right: int) -> tuple[str, str]:
    """Return code of the column and the row of an item among `down` by `right`.

    Of 32 neighbours, four are below each other and eight beside each other, and each four in which rows of both are
    read lie next to each other: few different numbers are read from local memory at once.
    """
    if down % 4 or right % 8:
        return f"item % {right}", f"item / {right}"
    across = right // 8
    column = f"item / 32 % {across} * 8 + item % 16 / 2"
    return column, f"item / {32 * across} * 4 + item % 32 / 16 * 2 + item % 2"


def _vector(dtype: str, block: GroupBlock) -> int:
    """Return how many numbers an item loads at once of a tile."""
    if dtype != work_dtype(dtype):
        return 1
    loads = min(block.rows, block.cols) * block.depth // block.items
    return min(_READ // np.dtype(dtype).itemsize, loads, block.depth, block.rows, block.cols)


def _read(to: str, tile: str, index: str, place: str, width: int, items: int, dtype: str) -> str:
    """Return code that reads some numbers of a row of a tile: neighbouring items read neighbours, `width` at a time."""
    at = f"{tile}[side][term][{index} / {width} * {items * width} + {place} * {width}]"
    if width == 1:
        return f"{to}[into][{index}] = {at}"
    vector = f"{C_TYPES[work_dtype(dtype)]}{width}"
    return f"vstore{width}(*(__local const {vector} *)&{at}, 0, {to}[into] + {index})"


def plan(problem: Problem, block: GroupBlock, units: int) -> GemmPlan:
    """Return the launches that compute a product by tiles, on a device of `units` compute units."""
    p = problem
    tiles = -(-p.m // block.rows) * -(-p.n // block.cols) * p.batch
    parts = max(min(-(-units // tiles), p.k // PART), 1)
    part = -(-max(p.k, 1) // parts)
    # Round up to whole tiles of terms, which may leave fewer parts.
    part = -(-part // block.depth) * block.depth
    parts = -(-max(p.k, 1) // part)
    along = [int(_is_along(x)) for x in ((p.a[1], p.a[2]), (p.b[2], p.b[1]))]
    sizes = pack(p.m, p.n, p.k, *p.a, p.b[0], p.b[2], p.b[1], *along, int(p.add))
    more = pack(*p.y, *p.z, parts, part, p.batch)
    letters = "abyz" + ("w" if parts > 1 else "z")
    items = tiles * parts * block.items
    multiply = Launch(block.name, (items,), (block.items,), (sizes, more), letters, "ab")
    if parts == 1:
        return GemmPlan([multiply])
    columns = -(-min(p.n, 1 << 16) // TOTAL) * TOTAL
    adding_up = total(p.m, p.n, p.batch, parts, p.add, (0, *p.y), (0, *p.z), columns, TOTAL)
    return GemmPlan([multiply, adding_up], parts * p.batch * p.m * p.n)


def _is_along(steps: tuple[int, int]) -> bool:
    """Tell whether numbers lie closer along the sums (the second step) than across them."""
    return abs(steps[1]) <= abs(steps[0])

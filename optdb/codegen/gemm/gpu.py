"""Products of matrices on a GPU: the kernel, and how a product is cut into launches.

A work group computes a tile of the result. It loads tiles of both matrices into local memory, the next ones while it
computes with those before, and each item keeps its part of the sums in registers (Volkov and Demmel, "Benchmarking GPUs
to tune dense linear algebra", 2008; Nath, Tomov and Dongarra, "An improved Magma gemm for Fermi GPUs", 2010). Strides
are free: neighbouring items load neighbouring elements, along the rows of a matrix or along its columns. Rows and
columns beyond the last are the last one again while they are read, and are not stored.

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
        A_LOADS=block.rows * block.depth // block.items,
        B_LOADS=block.cols * block.depth // block.items,
        A_READ=a_read,
        B_READ=b_read,
        READ_A=_read("x", "left", "r", "ty", a_read, block.rows // block.item_rows, dtype),
        READ_B=_read("v", "right", "c", "tx", b_read, block.cols // block.item_cols, dtype),
    )


def _read(to: str, tile: str, index: str, place: str, width: int, items: int, dtype: str) -> str:
    """Return code that reads some numbers of a row of a tile: neighbouring items read neighbours, `width` at a time."""
    at = f"{index} / {width} * {items * width} + {place} * {width}"
    if width == 1:
        return f"{to}[{index}] = {tile}[side][l][{at}]"
    vector = f"{C_TYPES[dtype]}{width}"
    return f"vstore{width}(*(__local const {vector} *)&{tile}[side][l][{at}], 0, {to} + {index})"


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

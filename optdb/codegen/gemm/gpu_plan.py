"""Products of matrices on a GPU: how one is cut into launches.

There is one launch, or, where a result has too few tiles to give all units work, one that adds up parts of the sums
and another that adds up the parts.
"""

from __future__ import annotations

from optdb.codegen.gemm.blocks import GroupBlock
from optdb.codegen.gemm.launches import GemmPlan, Launch, pack
from optdb.codegen.gemm.problem import Problem

#: Terms of a part, at least.
PART = 256
#: Groups that add up parts have so many items.
TOTAL = 64


def plan(problem: Problem, block: GroupBlock, units: int) -> GemmPlan:
    """Return the launches that compute a product.

    Parameters
    ----------
    problem : Problem
        What.
    block : GroupBlock
        By which tiles.
    units : int
        How many units the device has.
    """
    p = problem
    tiles = -(-p.m // block.rows) * -(-p.n // block.cols) * p.batch
    parts = max(min(-(-units // tiles), p.k // PART), 1)
    part = -(-max(p.k, 1) // parts)
    # Whole tiles of terms; then there may be fewer parts.
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
    sizes = pack(p.m, p.n, parts, p.batch * p.m * p.n, int(p.add))
    more = pack(0, *p.y, 0, *p.z)
    columns = -(-min(p.n, 1 << 16) // TOTAL) * TOTAL
    total = Launch("matmul_total", (columns, p.batch * p.m), (TOTAL, 1), (sizes, more), "yzw", "ab")
    return GemmPlan([multiply, total], parts * p.batch * p.m * p.n)


def _is_along(steps: tuple[int, int]) -> bool:
    """Tell whether numbers lie closer along the sums (the second step) than across them."""
    return abs(steps[1]) <= abs(steps[0])

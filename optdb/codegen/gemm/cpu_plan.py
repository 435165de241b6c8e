"""Products of matrices on a processor: how one is cut into launches.

The numbers of a product go in, and a plan comes out. Large matrices are cut along all three lengths, so that what is
packed stays in memory that is kept, and a panel of `b` in a core's cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from optdb.codegen.gemm.blocks import ItemBlock
from optdb.codegen.gemm.launches import GemmPlan, Launch, pack
from optdb.codegen.gemm.problem import Problem
from optdb.runtime.sizes import starts

#: Terms that are added up before the next ones are begun: a panel of so many rows stays in a core's cache.
TERMS = 2048
#: Numbers that are packed at a time of each matrix, at most (unless `TERMS` of one panel are more).
PACKED = 1 << 23
#: Items for each unit, that one slow unit does not hold up all.
ITEMS_PER_UNIT = 4
#: Terms of a part, at least, where sums are cut into parts to give all units work.
PART = 512
#: Panels of columns for which it pays to pack `a`, if it has so many numbers.
PANELS = 8
LARGE = 1 << 18
#: Blocks of rows for which it pays to pack `b`, if its rows are this many bytes apart (a page) or more.
ROW_BLOCKS = 8
FAR = 4096


def plan(problem: Problem, block: ItemBlock, units: int, half: bool, itemsize: int) -> GemmPlan:
    """Return the launches that compute a product.

    Parameters
    ----------
    problem : Problem
        What.
    block : ItemBlock
        By which blocks.
    units : int
        How many units the device has.
    half : bool
        Whether the matrices are of another dtype than is computed in, so that both have to be packed.
    itemsize : int
        Bytes of a number that is computed with.
    """
    return _Planner(problem, block, units, half, itemsize).plan()


class _Planner:
    def __init__(self, problem: Problem, block: ItemBlock, units: int, half: bool, itemsize: int) -> None:
        p = problem
        self.problem, self.block, self.units = p, block, units
        self.panels, self.row_blocks = -(-p.n // block.cols), -(-p.m // block.rows)
        # An empty sum has nothing to pack.
        self.pack_b = p.k > 0 and (half or p.b[2] != 1 or self._b_is_far(itemsize) or self._b_is_small())
        self.pack_a = p.k > 0 and (half or self._a_is_large())
        pieces = p.batch * self.panels * self.row_blocks
        wanted = min(-(-2 * units // pieces), p.k // PART)
        self.part = p.k if wanted < 2 else -(-p.k // wanted)
        self.parts = 1 if wanted < 2 else -(-p.k // self.part)
        # Sums that are rounded to 16 bits on the way would lose digits, and parts are added up at the end.
        self.terms = p.k if half or self.parts > 1 else TERMS
        self.depth = min(self.terms, p.k)

    def _b_is_far(self, itemsize: int) -> bool:
        return self.row_blocks >= ROW_BLOCKS and abs(self.problem.b[1]) * itemsize >= FAR

    def _b_is_small(self) -> bool:
        """Whether a vector of columns reaches beyond so many rows of `b` that it is not worth while to read on."""
        p = self.problem
        return p.n < self.block.cols and p.b[1] < max(p.n, 4)

    def _a_is_large(self) -> bool:
        return self.panels >= PANELS and self.problem.m * self.problem.k >= LARGE

    def _whole(self, l0: int, k: int) -> int:
        """Return for how many terms a vector of columns can be read in place."""
        p = self.problem
        beyond = self.block.cols - p.n
        if self.pack_b or beyond <= 0 or k == 0:
            return k
        # The last number of the matrix is at (k - 1) * step + n - 1.
        return min(max(p.k - -(-beyond // p.b[1]) - l0, 0), k)

    def plan(self) -> GemmPlan:
        p = self.problem
        rows = self._slab(p.m, self.block.rows, self.pack_a)
        cols = self._slab(p.n, self.block.cols, self.pack_b)
        a_size = self._padded(rows, self.block.rows) * self.depth if self.pack_a else 0
        b_size = self._padded(cols, self.block.cols) * self.depth if self.pack_b else 0
        batch = min(p.batch, max(1, PACKED // max(a_size, b_size, 1)))
        self.a_size, self.b_size = a_size, b_size
        self.b_at = a_size * (batch if p.a[0] else 1)
        self.w_at = self.b_at + b_size * (batch if p.b[0] else 1)
        launches = [
            launch
            for first in starts(p.batch, batch)
            for l0 in starts(max(p.k, 1), max(self.terms, 1))
            for j0 in starts(p.n, cols)
            for launch in self._slabs(first, min(batch, p.batch - first), l0, j0, min(cols, p.n - j0), rows)
        ]
        total = self.parts * batch * p.m * p.n if self.parts > 1 else 0
        return GemmPlan(launches, self.w_at + total)

    def _slabs(self, first: int, batch: int, l0: int, j0: int, n: int, rows: int) -> Iterator[Launch]:
        """Yield the launches for some products of the batch, some terms and some columns."""
        p = self.problem
        k = min(self.terms, p.k - l0)
        if self.pack_b:
            at = first * p.b[0] + l0 * p.b[1] + j0 * p.b[2]
            places = (self.b_at, at, p.b[0], p.b[2], p.b[1], self.b_size)
            yield self._pack("b", self.block.cols, batch if p.b[0] else 1, n, k, *places)
        for i0 in starts(p.m, rows):
            m = min(rows, p.m - i0)
            if self.pack_a:
                at = first * p.a[0] + i0 * p.a[1] + l0 * p.a[2]
                places = (0, at, p.a[0], p.a[1], p.a[2], self.a_size)
                yield self._pack("a", self.block.rows, batch if p.a[0] else 1, m, k, *places)
            yield self._multiply(first, batch, l0, i0, j0, m, n, k)
            if self.parts > 1:
                yield self._total(first, batch, i0, j0, m, n)

    def _pack(
        self, letter: str, width: int, batch: int, length: int, k: int, to: int, at: int, step0: int, *rest: int
    ) -> Launch:
        step, k_step, size = rest
        sizes = pack(length, k, to, at, step0, step, k_step, size)
        return Launch(f"matmul_pack_{width}", (-(-length // width), batch), (1, 1), (sizes,), letter + "w")

    def _multiply(self, first: int, batch: int, l0: int, i0: int, j0: int, m: int, n: int, k: int) -> Launch:
        p, block = self.problem, self.block
        # Of the first terms, what is added comes from y; of those after them, from what is there of z.
        add, y = (p.add, p.y) if l0 == 0 else (True, p.z)
        panels, row_blocks = -(-n // block.cols), -(-m // block.rows)
        chunks = min(row_blocks, -(-ITEMS_PER_UNIT * self.units // (panels * batch * self.parts)))
        chunk = -(-row_blocks // chunks) * block.rows
        if self.pack_a:
            a = (0, self.a_size if p.a[0] else 0, block.rows * k, 1, block.rows)
        else:
            at = first * p.a[0] + i0 * p.a[1] + l0 * p.a[2]
            a = (at, p.a[0], block.rows * p.a[1], p.a[1], p.a[2])
        if self.pack_b:
            b = (self.b_at, self.b_size if p.b[0] else 0, block.cols * k, block.cols)
        else:
            b = (first * p.b[0] + l0 * p.b[1] + j0, p.b[0], block.cols, p.b[1])
        flags = (int(not self.pack_b), int(add), int(self.pack_a))
        y_at, z_at = (first * x[0] + i0 * x[1] + j0 * x[2] for x in (y, p.z))
        part = self.part if self.parts > 1 else k
        sizes = pack(m, n, k, *a, *b, chunk, *flags)
        more = pack(y_at, *y, z_at, *p.z, self.parts, part, self.w_at, self._whole(l0, k))
        items = (panels, -(-m // chunk), batch * self.parts)
        letters = ("w" if self.pack_a else "a") + ("w" if self.pack_b else "b")
        letters += ("y" if l0 == 0 else "z") + "z" + ("w" if self.w_at or self.parts > 1 else "z")
        return Launch(block.name, items, (1, 1, 1), (sizes, more), letters, "ab" if l0 == 0 else "a1")

    def _total(self, first: int, batch: int, i0: int, j0: int, m: int, n: int) -> Launch:
        p = self.problem
        y_at, z_at = (first * x[0] + i0 * x[1] + j0 * x[2] for x in (p.y, p.z))
        sizes = pack(m, n, self.parts, batch * m * n, int(p.add), self.w_at)
        more = pack(y_at, *p.y, z_at, *p.z)
        return Launch("matmul_total", (1, batch * m), (1, 1), (sizes, more), "yzw", "ab")

    def _slab(self, length: int, side: int, packed: bool) -> int:
        """Return how many rows, or columns, are computed at a time: all, but for what would be packed."""
        if not packed:
            return max(length, 1)
        return min(max(PACKED // (max(self.depth, 1) * side), 1) * side, self._padded(length, side))

    @staticmethod
    def _padded(length: int, side: int) -> int:
        return -(-length // side) * side

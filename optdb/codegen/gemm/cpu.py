"""Matrix products on a CPU: the kernels, and the division of a product into launches.

A work item processes one panel of columns from top to bottom, and keeps a block of sums in registers. Matrices are read
in place, or packed into panels term by term, as in Goto and van de Geijn, "Anatomy of high-performance matrix
multiplication" (2008). If `b` is read in place and the last panel is incomplete, the panel begins further left; if `b`
has fewer columns than a panel, the panel reads on into the next row. Large matrices are split along all three lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from optdb.codegen.gemm.blocks import ItemBlock
from optdb.codegen.gemm.launches import TOTAL_GROUP, GemmPlan, Launch, pack, product_kernel, total
from optdb.codegen.gemm.problem import Problem
from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.scalars.types import C_TYPES
from optdb.codegen.source import body, filled, functions, load_w
from optdb.runtime.sizes import starts

#: Number of terms in a block; a panel of `TERMS` rows stays in a core's cache.
TERMS = 2048
#: Maximum number of elements of each matrix that are packed at a time, unless one panel has more.
PACKED = 1 << 23
#: Number of work items per compute unit; with several items, one slow compute unit does not delay the launch.
ITEMS_PER_UNIT = 4
#: Minimum number of terms in a part, if sums are split into parts to occupy all compute units.
PART = 512
#: If neighbouring terms are at least `FAR` bytes apart, CPUs do not prefetch them.
FAR = 1024
#: `a` is packed if there are at least `PANELS` panels of columns, and it has at least `LARGE` elements or far terms.
PANELS = 8
LARGE = 1 << 18
#: `b` is packed if there are at least `ROW_BLOCKS` blocks of rows, and its terms are far.
ROW_BLOCKS = 8

_CODE = functions("gemm/cpu.cl")


def pack_kernel(dtype: str, width: int) -> Kernel:
    """Return the kernel that packs a matrix into panels of `width` rows or columns."""
    return product_kernel(_CODE["PACK"], dtype, PACK=f"matmul_pack_{width}", WIDTH=width)


def block_kernel(dtype: str, block: ItemBlock) -> Kernel:
    """Return the kernel that multiplies with blocks of one shape."""
    half, width = load_w(dtype) != "", block.width
    words = {
        "BLOCK": block.name,
        "ROWS": block.rows,
        "COLS": block.cols,
        "WIDTH": width,
        "VECTORS": block.cols // width,
        "VECTOR": f"{C_TYPES[dtype]}{width}",
        "VLOAD": f"vload{width}",
        "VSTORE": f"vstore{width}",
        "VLOAD_T": f"vload_half{width}" if half else f"vload{width}",
        "VSTORE_T": f"vstore_half{width}_rte" if half else f"vstore{width}",
        "MEMORY": f"GLOBAL_MEM {'half' if half else ctype(dtype)}",
    }
    code = filled(_CODE["BLOCK"], HIGH=_rows(block.rows, block.rows), LOW=_rows(block.rows // 2, block.rows))
    return product_kernel(code, dtype, **words)


def _rows(height: int, rows: int) -> str:
    """Return code that computes a block of `height` rows; full blocks have `rows` rows."""
    sums = body(_CODE["pointers"]) + filled(body(_CODE["sums"]), LEFT="row[r][l * a_step]")
    if height == rows:
        side_by_side = filled(body(_CODE["sums"]), LEFT="block[l * a_step + r]")
        sums = f"if (a_row == 1 && (a_packed || rows == HEIGHT)) {{{side_by_side}}} else {{{sums}}}"
    return filled(filled(body(_CODE["rows_of_block"]), SUMS=sums), HEIGHT=height)


def plan(problem: Problem, block: ItemBlock, units: int, half: bool, itemsize: int) -> GemmPlan:
    """Return the launches that compute a product with blocks, on a device with `units` compute units.

    `itemsize` is the item size of the dtype used for computation. With `half`, the dtype of the matrices differs from
    the dtype of the computation, and both matrices are packed.
    """
    return _Planner(problem, block, units, half, itemsize).plan()


class _Planner:
    def __init__(self, problem: Problem, block: ItemBlock, units: int, half: bool, itemsize: int) -> None:
        p = problem
        self.problem, self.block, self.units = p, block, units
        self.panels, self.row_blocks = -(-p.n // block.cols), -(-p.m // block.rows)
        # An empty sum has nothing to pack.
        is_far = self.row_blocks >= ROW_BLOCKS and abs(p.b[1]) * itemsize >= FAR
        is_large = p.m * p.k >= LARGE or abs(p.a[2]) * itemsize >= FAR
        # A vector of columns must not extend past the end of a row.
        is_narrow = p.n < block.cols and p.b[1] < max(p.n, 4)
        self.pack_b = p.k > 0 and (half or p.b[2] != 1 or is_far or is_narrow)
        self.pack_a = p.k > 0 and (half or (self.panels >= PANELS and is_large))
        pieces = p.batch * self.panels * self.row_blocks
        part_count = min(-(-2 * units // pieces), p.k // PART)
        self.part = p.k if part_count < 2 else -(-p.k // part_count)
        self.parts = 1 if part_count < 2 else -(-p.k // self.part)
        # Add all terms at once if intermediate sums would be rounded to 16 bits, or if parts are added up at the end.
        self.terms = p.k if half or self.parts > 1 else TERMS
        self.depth = min(self.terms, p.k)

    def _whole(self, l0: int, k: int) -> int:
        """Return the number of terms for which a whole vector of columns can be read in place."""
        p = self.problem
        beyond = self.block.cols - p.n
        if self.pack_b or beyond <= 0 or k == 0:
            return k
        # The last element of the matrix is at (k - 1) * step + n - 1.
        return min(max(p.k - -(-beyond // p.b[1]) - l0, 0), k)

    def plan(self) -> GemmPlan:
        p = self.problem
        rows = self._slab(p.m, self.block.rows, self.pack_a)
        cols = self._slab(p.n, self.block.cols, self.pack_b)
        a_size = _padded(rows, self.block.rows) * self.depth if self.pack_a else 0
        b_size = _padded(cols, self.block.cols) * self.depth if self.pack_b else 0
        batch = min(p.batch, max(1, PACKED // max(a_size, b_size, 1)))
        self.a_size, self.b_size = a_size, b_size
        self.b_offset = a_size * (batch if p.a[0] else 1)
        self.w_at = self.b_offset + b_size * (batch if p.b[0] else 1)
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
        """Yield the launches for a range of the batch, a range of the terms and a range of the columns."""
        p = self.problem
        k = min(self.terms, p.k - l0)
        if self.pack_b:
            at = first * p.b[0] + l0 * p.b[1] + j0 * p.b[2]
            layout = (self.b_offset, at, p.b[0], p.b[2], p.b[1], self.b_size)
            yield _packing("b", self.block.cols, batch if p.b[0] else 1, n, k, layout)
        for i0 in starts(p.m, rows):
            m = min(rows, p.m - i0)
            if self.pack_a:
                at = first * p.a[0] + i0 * p.a[1] + l0 * p.a[2]
                layout = (0, at, p.a[0], p.a[1], p.a[2], self.a_size)
                yield _packing("a", self.block.rows, batch if p.a[0] else 1, m, k, layout)
            yield self._multiply(first, batch, l0, i0, j0, m, n, k)
            if self.parts > 1:
                yield self._total(first, batch, i0, j0, m, n)

    def _multiply(self, first: int, batch: int, l0: int, i0: int, j0: int, m: int, n: int, k: int) -> Launch:
        p, block = self.problem, self.block
        # Products of the first terms are added to y, and products of later terms are added to z.
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
            b = (self.b_offset, self.b_size if p.b[0] else 0, block.cols * k, block.cols)
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
        return total(replace(p, batch=batch, m=m, n=n), self.parts, TOTAL_GROUP, (y_at, z_at, self.w_at))

    def _slab(self, length: int, side: int, packed: bool) -> int:
        """Return how many rows or columns are computed at a time: all of them unless the matrix is packed."""
        if not packed:
            return max(length, 1)
        return min(max(PACKED // (max(self.depth, 1) * side), 1) * side, _padded(length, side))


def _packing(letter: str, width: int, batch: int, length: int, k: int, layout: Sequence[int]) -> Launch:
    sizes = pack(length, k, *layout)
    return Launch(f"matmul_pack_{width}", (-(-length // width), batch), (1, 1), (sizes,), letter + "w")


def _padded(length: int, side: int) -> int:
    return -(-length // side) * side

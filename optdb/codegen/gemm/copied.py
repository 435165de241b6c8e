"""Float32 products on a GPU with asynchronous copies of tiles to local memory.

Tiles are copied some stages ahead (``cp.async``). A tile with contiguous terms either keeps its layout, or is
transposed by copying one number at a time. An item reads four terms of one row at once from tiles that keep contiguous
terms, and one term of four rows at once from all other tiles. If only the right matrix has contiguous terms, the
transposed product is computed.

References
----------
NVIDIA, "CUTLASS: efficient GEMM in CUDA" (2017), and "Parallel Thread Execution ISA" (cp.async).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optdb.codegen.gemm import gpu
from optdb.codegen.gemm.blocks import GroupBlock, chosen, has_large_tiles
from optdb.codegen.gemm.families import Choice, Request
from optdb.codegen.gemm.gpu import PART, item_position
from optdb.codegen.gemm.launches import LAUNCH_S, GemmPlan, by_tiles, product_kernel, total_kernel
from optdb.codegen.gemm.problem import Along, GroupTile, Problem, classify
from optdb.codegen.gemm.tensor_cores import BAND, instructions_of, memory_words, with_tile_found
from optdb.codegen.kernels import Kernel
from optdb.codegen.source import functions, functions_in
from optdb.runtime.context_options import InstructionSet

if TYPE_CHECKING:
    from optdb.runtime.context import Context

_COPIES = ("copy_async16", "copy_async_all", "copy_number_float32", "copy_number_all")
_CALLED = (*_COPIES, "commit_copies", "await_copies", "opaque")


@dataclass(frozen=True)
class CopiedBlock(GroupTile):
    """A tile that is copied asynchronously."""

    #: Number of stages in local memory.
    stages: int
    #: Size of the part of the result that each item keeps in registers.
    item_rows: int
    item_cols: int
    #: Whether tiles with contiguous terms are transposed, by copying one number at a time.
    transposes: bool = False

    @property
    def items(self) -> int:
        return (self.rows // self.item_rows) * (self.cols // self.item_cols)

    def stage_words(self, length: int, is_along: bool) -> int:
        """Return the number of words that a tile takes in a stage.

        A tile with contiguous terms is padded: by four words for each term if it is transposed, else by four words for
        every four rows.
        """
        lines = self.depth * 4 if self.transposes else length
        return length * self.depth + lines * is_along

    @property
    def local_bytes(self) -> int:
        """Upper bound on the local memory of a group, in bytes."""
        return 4 * self.stages * (self.stage_words(self.rows, True) + self.stage_words(self.cols, True))


#: Tiles for large products whose left matrix has contiguous terms (True) or contiguous rows (False). Copying the
#: left matrix number by number takes longer, so the first tile has few rows. These tiles, and all constants below, were
#: measured on an NVIDIA H200.
LARGE = {True: CopiedBlock(64, 128, 16, 3, 8, 8, transposes=True), False: CopiedBlock(64, 64, 16, 4, 8, 8)}

#: Tiles for products that have few terms, or for which large tiles would leave compute units idle. Each value consists
#: of a fixed time per tile in seconds, the time per term in seconds if a compute unit has only one tile, and the
#: operations per second of a busy compute unit.
SMALLER = {
    CopiedBlock(64, 64, 16, 4, 4, 8): (0.86e-6, 37e-9, 0.335e12),
    CopiedBlock(32, 32, 32, 3, 4, 4): (0.32e-6, 23e-9, 0.24e12),
}
#: Products with at most this many terms always use smaller tiles. The fixed time of a large tile is 2 us.
_FEW_TERMS = 128
#: The classes of products that use copied tiles.
_CLASSES = ("small", "square")
#: A compute unit reaches its full rate with `_BUSY` items. With fewer items, the fraction of the full rate is `_LEAST`
#: plus a share that grows with the number of items.
_BUSY, _LEAST = 384, 0.55
#: Operations per second, and bytes moved per second, of one compute unit.
_RATE, _BYTES = 0.38e12, 2e10
#: Maximum number of parts of a sum if there are enough tiles to keep all compute units busy.
_MOST_PARTS = 8
#: For two matrices with contiguous terms, tiles loaded through registers are faster if they keep more than this
#: fraction of the compute units busy.
_LOADED, _ENOUGH = GroupBlock(128, 128, 16, 8, 8), 0.88


def kernel_name(block: CopiedBlock, along: Along) -> str:
    """Return the name of a kernel."""
    shape = f"{block.rows}x{block.cols}x{block.depth}_{block.item_rows}x{block.item_cols}_{block.stages}"
    kind = "transposed" if block.transposes else "copied"
    return f"{kind}_{shape}_{''.join('nt'[side] for side in along)}"


def copied_kernel(block: CopiedBlock, along: Along, instructions: InstructionSet) -> Kernel:
    """Return the kernel that multiplies with tiles of one shape; ``(False, True)`` is not supported for `along`."""
    code, called = functions("gemm/copied.cl"), functions_in(instructions.warps)
    text = "".join([*(called[name] for name in _CALLED), code["BY_NUMBERS"], with_tile_found(code["MATMUL"])])
    column, row = item_position(block.rows // block.item_rows, block.cols // block.item_cols)
    keeps_lines = along[0] and not block.transposes
    # If the left tile keeps lines of terms, a copy begins after the wait and not before, so one copy fewer may be
    # pending.
    pending, a_words = block.stages - 2 - keeps_lines, block.stage_words(block.rows, along[0])
    words: dict[str, str | int] = {
        **{"MATMUL": kernel_name(block, along), "BY_NUMBERS": f"by_numbers_{kernel_name(block, along)}"},
        **block.words(),
        **{"BAND": BAND, "ITEM_ROW": row, "ITEM_COLUMN": column, "PENDING": pending, "A_WORDS": a_words},
        "STAGE_WORDS": a_words + block.stage_words(block.cols, along[1]),
        **memory_words(instructions),
    }
    for letter, is_along in zip("AB", along, strict=True):
        words |= {f"{letter}_ALONG": int(is_along and not block.transposes)}
        words |= {f"{letter}_NUMBERS": int(is_along and block.transposes)}
    return product_kernel(text, "float32", **words)


def choices(context: Context, request: Request) -> list[Choice[GemmPlan]]:
    """Return the choice that copies tiles, in a list; the list is empty unless the product is float32 and benefits.

    Devices with tensor cores support asynchronous copies.
    """
    profile, problem = context.profile, request.problem
    if request.dtype != "float32" or not profile.has_tensor_cores or profile.runs_items_serially:
        return []
    block = _block_of(context, problem)
    if block is None:
        return []
    for strides, is_along in zip((problem.a, problem.b), problem.along, strict=True):
        copies_numbers = is_along and block.transposes
        if min(strides[1:]) != 1 or not (copies_numbers or (request.is_aligned and _is_aligned(strides))):
            return []
    if block in LARGE.values() and all(problem.along) and gpu.fill(problem, _LOADED, profile.compute_units) > _ENOUGH:
        return []
    if block.items > profile.max_local_size or block.local_bytes > profile.local_memory_bytes:
        return []
    if is_swapped := problem.along == (False, True):
        problem = problem.transposed()
    needed = [copied_kernel(block, problem.along, instructions_of(context)), total_kernel("float32")]
    planned = plan(problem, block, profile.compute_units)
    return [Choice("a product by copied tiles", planned.swapped() if is_swapped else planned, kernels=lambda: needed)]


def _is_aligned(strides: tuple[int, int, int]) -> bool:
    """Return whether all copied groups of four numbers are aligned, provided that the first element is aligned.

    The kernel checks the alignment again, because arrays bound later may be unaligned; such arrays are copied one
    number at a time.
    """
    batch, row, column = strides
    return max(row, column) % 4 == 0 and batch % 4 == 0


def _block_of(context: Context, problem: Problem) -> CopiedBlock | None:
    """Return the tile shape for a product; None if other kernels are faster."""
    large = LARGE[any(problem.along)]
    if context.options.copied_tiles == "all":
        return large
    p, units = problem, context.profile.compute_units
    if p.k > _FEW_TERMS and has_large_tiles(gpu.block_of(chosen(context, "float32"), problem, units).name):
        return large
    if classify(p.batch, p.m, p.n, units) not in _CLASSES:
        return None

    def seconds(block: CopiedBlock) -> float:
        if block is large:
            return _seconds(problem, block, parts_of(problem, block, units), units)
        (overhead, latency, rate), tiles = SMALLER[block], -(-problem.tiles(block) // units)
        return tiles * overhead + p.k * max(latency, tiles * 2 * block.rows * block.cols / rate)

    return min([large, *SMALLER] if p.k > _FEW_TERMS else SMALLER, key=seconds)


def plan(problem: Problem, block: CopiedBlock, units: int) -> GemmPlan:
    """Return the launches that compute a product with tiles, on a device with `units` compute units."""
    parts = 1 if block in SMALLER else parts_of(problem, block, units)
    return by_tiles(problem, kernel_name(block, problem.along), block, parts)


def parts_of(problem: Problem, block: CopiedBlock, units: int) -> int:
    """Return the number of parts per sum for which the estimated time is shortest."""
    most = min(problem.k // PART, max(_MOST_PARTS, _BUSY * units // (problem.tiles(block) * block.items)))
    return min(range(1, max(most, 1) + 1), key=lambda parts: _seconds(problem, block, parts, units))


def _seconds(problem: Problem, block: CopiedBlock, parts: int, units: int) -> float:
    """Return a product's estimated time."""
    groups = problem.tiles(block) * parts / units
    most = math.ceil(groups)
    rate = _RATE * units * min(1, _LEAST + (1 - _LEAST) * most * block.items / _BUSY)
    numbers = problem.batch * problem.m * problem.n
    computing = 2 * numbers * problem.k * most / groups / rate
    return computing if parts == 1 else computing + LAUNCH_S + 8 * parts * numbers / (_BYTES * units)

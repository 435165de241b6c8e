"""Float32 products on a GPU with asynchronous copies of tiles to local memory.

Tiles are copied some stages ahead (``cp.async``), and keep the layout of the matrices: if terms are contiguous, an item
reads four terms of one row at once; otherwise, it reads one term of four rows. If only the right matrix has contiguous
terms, the transposed product is computed.

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
from optdb.codegen.gemm.problem import GroupTile, Problem, classify
from optdb.codegen.gemm.tensor_kernels import BAND, MEMORY_WORDS, with_tile_found
from optdb.codegen.kernels import Kernel
from optdb.codegen.source import body, filled, functions
from optdb.runtime.context_options import Instructions

if TYPE_CHECKING:
    from optdb.runtime.context import Context

_CALLED = ("copy_async16", "copy_async_all", "commit_copies", "await_copies", "opaque")


@dataclass(frozen=True)
class CopiedBlock(GroupTile):
    """A tile that is copied asynchronously."""

    #: Number of stages in local memory.
    stages: int
    #: Size of the part of the result that each item keeps in registers.
    item_rows: int
    item_cols: int

    @property
    def items(self) -> int:
        return (self.rows // self.item_rows) * (self.cols // self.item_cols)

    def stage_words(self, length: int, is_along: bool) -> int:
        """Return a tile's size in a stage, in words; with contiguous terms, every 4 rows get 4 words of padding."""
        return length * (self.depth + is_along)

    @property
    def local_bytes(self) -> int:
        """Upper bound on the local memory of a group, in bytes."""
        return 4 * self.stages * (self.stage_words(self.rows, True) + self.stage_words(self.cols, True))


#: Like all constants below, measured on an NVIDIA H200.
BLOCK = CopiedBlock(64, 64, 16, 4, 8, 8)


#: Tiles for products that have few terms, or for which `BLOCK` would leave compute units idle. Each value
#: consists of a fixed time per tile in seconds, the time per term in seconds if a unit has only one tile, and the
#: operations per second of a busy unit.
SMALLER = {
    CopiedBlock(64, 64, 16, 4, 4, 8): (0.86e-6, 37e-9, 0.335e12),
    CopiedBlock(32, 32, 32, 3, 4, 4): (0.32e-6, 23e-9, 0.285e12),
}
#: Products with at most this many terms always use smaller tiles. The fixed time of a large tile is 2 us.
_FEW_TERMS = 128
#: The classes of products that use copied tiles.
_CLASSES = ("small", "square")
#: A compute unit processes `_SIDE_BY_SIDE` tiles in the time of one tile, and `_BUSY` tiles keep it busy; with fewer
#: tiles, it is slower by the factor `_SLACK`. With three tiles per unit, a product of size 3200 x 512 x 10000 takes 941
#: us on an NVIDIA H100; it takes 765 us when split into five parts, and 653 us with cuBLAS.
_SIDE_BY_SIDE, _BUSY, _SLACK = 2, 3, 1.09
#: Operations per second, and bytes moved per second, of one compute unit.
_RATE, _BYTES = 0.38e12, 2e10
#: Maximum number of parts if tiles alone would keep all units busy.
_MOST_PARTS = 8
#: For two matrices with contiguous terms, tiles loaded through registers are faster if they keep more than this
#: fraction of the compute units busy.
_LOADED, _ENOUGH = GroupBlock(128, 128, 16, 8, 8), 0.88


def kernel_name(block: CopiedBlock, along: tuple[bool, bool]) -> str:
    """Return the name of a kernel; `along` says for each matrix whether terms are contiguous."""
    shape = f"{block.rows}x{block.cols}x{block.depth}_{block.item_rows}x{block.item_cols}_{block.stages}"
    return f"copied_{shape}_{''.join('nt'[side] for side in along)}"


def copied_kernel(block: CopiedBlock, along: tuple[bool, bool], instructions: Instructions) -> Kernel:
    """Return the kernel that multiplies with tiles of one shape, for one memory order of the matrices.

    `along` says for each matrix whether its terms are contiguous; ``(False, True)`` is not supported. `instructions`
    selects the device's instructions, or functions that emulate them.
    """
    code, called = functions("gemm/copied.cl"), functions(f"gemm/tensor_cores_{instructions}.cl")
    text = "".join(called[name] for name in _CALLED) + code["BY_NUMBERS"]
    text += filled(with_tile_found(code["MATMUL"]), LOOP=body(code["LOOP_ALONG" if along[0] else "LOOP_ACROSS"]))
    column, row = item_position(block.rows // block.item_rows, block.cols // block.item_cols)
    # Items in LOOP_ALONG still read the previous stage after that stage ends, so one fewer copy may be pending.
    pending, a_words = block.stages - 2 - along[0], block.stage_words(block.rows, along[0])
    words: dict[str, str | int] = {
        **{"MATMUL": kernel_name(block, along), "BY_NUMBERS": f"by_numbers_{kernel_name(block, along)}"},
        **block.words(),
        **{"BAND": BAND, "ITEM_ROW": row, "ITEM_COLUMN": column, "PENDING": pending, "A_WORDS": a_words},
        "STAGE_WORDS": a_words + block.stage_words(block.cols, along[1]),
        **MEMORY_WORDS[instructions],
    }
    for letter, length, is_along in zip("AB", (block.rows, block.cols), along):
        piece, line = block.items * 4, block.depth if is_along else length
        words[f"{letter}_ALONG"], words[f"{letter}_LENGTH"] = int(is_along), line
        words[f"{letter}_GAP"] = piece + piece // block.depth if is_along else piece
        # Neighbouring items read lines of terms that are four lines apart; a gap puts such lines into different banks.
        at = f"(line) * {line} + (line) / 4 * 4" if is_along else f"(line) * {line}"
        text = f"#define {letter}_PLACE(line, at) ({at} + (at))\n{text}"
    return product_kernel(text, "float32", **words)


def choices(context: Context, request: Request) -> list[Choice[GemmPlan]]:
    """Return the choice that copies tiles; empty unless the product is float32 and benefits from copied tiles.

    Devices with tensor cores support asynchronous copies.
    """
    profile, problem = context.profile, request.problem
    if request.dtype != "float32" or not profile.has_tensor_cores or profile.runs_items_serially:
        return []
    if not (request.is_aligned and _is_aligned(problem.a) and _is_aligned(problem.b)):
        return []
    block = _block_of(context, problem)
    if block is None:
        return []
    if block == BLOCK and all(problem.along) and gpu.fill(problem, _LOADED, profile.compute_units) > _ENOUGH:
        return []
    if block.items > profile.max_local_size or block.local_bytes > profile.local_memory_bytes:
        return []
    if is_swapped := problem.along == (False, True):
        problem = problem.transposed()
    needed = [copied_kernel(block, problem.along, context.options.instructions), total_kernel("float32")]
    planned = plan(problem, block, profile.compute_units)
    return [Choice("a product by copied tiles", planned.swapped() if is_swapped else planned, kernels=lambda: needed)]


def _is_aligned(steps: tuple[int, int, int]) -> bool:
    """Return whether all pieces of a matrix are aligned, provided that its first element is aligned.

    The kernel checks the alignment again, because arrays bound later may be unaligned; such arrays are copied one
    number at a time.
    """
    batch, row, column = steps
    return min(row, column) == 1 and max(row, column) % 4 == 0 and batch % 4 == 0


def _block_of(context: Context, problem: Problem) -> CopiedBlock | None:
    """Return the tile shape for a product; None if other kernels are faster."""
    if context.options.copied_tiles == "all":
        return BLOCK
    p, units = problem, context.profile.compute_units
    is_large = has_large_tiles(gpu.block_of(chosen(context, "float32"), problem, units).name)
    if is_large and p.k > _FEW_TERMS:
        return BLOCK
    if classify(p.batch, p.m, p.n, units) not in _CLASSES:
        return None

    def seconds(block: CopiedBlock) -> float:
        (overhead, latency, rate), tiles = SMALLER[block], -(-problem.tiles(block) // units)
        return tiles * overhead + p.k * max(latency, tiles * 2 * block.rows * block.cols / rate)

    return min(SMALLER, key=seconds)


def plan(problem: Problem, block: CopiedBlock, units: int) -> GemmPlan:
    """Return the launches that compute a product with tiles, on a device with `units` compute units."""
    tiles = problem.tiles(block)
    parts = 1 if block in SMALLER else parts_of(problem, tiles, units)
    return by_tiles(problem, kernel_name(block, problem.along), block, parts)


def parts_of(problem: Problem, tiles: int, units: int) -> int:
    """Return the number of parts per sum that gives the shortest estimated time."""
    most = min(problem.k // PART, max(_MOST_PARTS, _SIDE_BY_SIDE * units // tiles))
    return min(range(1, max(most, 1) + 1), key=lambda parts: _seconds(problem, tiles * parts / units, parts, units))


def _seconds(problem: Problem, groups: float, parts: int, units: int) -> float:
    """Return a product's estimated time; `groups` is the number of work groups per compute unit."""
    numbers = problem.batch * problem.m * problem.n
    idle = math.ceil(groups / _SIDE_BY_SIDE) * _SIDE_BY_SIDE / groups * (_SLACK if groups < _BUSY else 1)
    computing = 2 * numbers * problem.k * idle / (_RATE * units)
    return computing if parts == 1 else computing + LAUNCH_S + 8 * parts * numbers / (_BYTES * units)

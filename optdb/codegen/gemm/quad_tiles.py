"""Small float32 products on a GPU, with vector loads of four numbers: the kernels, and the products that use them.

Products with few tiles, as in one step of a recurrent network, are latency-bound. Therefore, an item reads four numbers
of each matrix at once, and prefetches the next tiles into registers. Products of unaligned matrices use the kernels of
`gpu.py`. At precisions below the highest, tensor cores are used if available; each warp then computes all sums of a
tile over some of the terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from optdb.codegen.gemm.blocks import is_default
from optdb.codegen.gemm.families import Choice, Request
from optdb.codegen.gemm.launches import GemmPlan, by_tiles, product_kernel, retiled, total_kernel
from optdb.codegen.gemm.problem import CLASSES, FEW_TERMS, GroupTile, Problem, classify
from optdb.codegen.gemm.tensor_cores import ROUNDING, instructions_of, multiply_add_function
from optdb.codegen.kernels import Kernel
from optdb.codegen.source import body, filled, functions
from optdb.runtime.context_options import InstructionSet

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Number of elements in a vector load, and the load's size in bytes.
_QUAD, _QUAD_NBYTES = 4, 16


@dataclass(frozen=True)
class QuadTile(GroupTile):
    """A tile whose items each compute `item_rows` rows of four sums."""

    #: Number of items that share the terms of each sum.
    splits: int
    item_rows: int = 8
    #: Whether to multiply in TF32 on tensor cores; each warp multiplies 16 terms.
    tensor: bool = field(default=False, kw_only=True)

    @property
    def items(self) -> int:
        return self.rows * self.cols // (self.item_rows * _QUAD) * self.splits

    @property
    def pitch(self) -> int:
        """Quads per row in local memory, including one quad of padding that avoids bank conflicts between rows."""
        return self.depth // _QUAD + 1

    def local_quads(self, b_along: bool) -> int:
        """Return how many quads of local memory a group needs for tiles or partial sums, whichever take more."""
        right = self.cols * self.pitch if b_along else self.depth * self.cols // _QUAD
        tiles, sums = 2 * (self.rows * self.pitch + right), self.splits * self.rows * self.cols // _QUAD
        return sums if self.tensor else max(tiles, sums)

    def words(self) -> dict[str, int]:
        return super().words() | {"TURNS": max(self.rows * self.cols // _QUAD // self.items, 1)}

    def kernel_name(self, b_along: bool) -> str:
        """Return the name of the kernel that `quad_kernel` or `tensor_quad_kernel` returns for this tile."""
        kind = "_tf32" if self.tensor else f"x{self.depth}"
        return f"matmul_{self.rows}x{self.cols}{kind}_quads_{'nt'[b_along]}"


#: Measured on an NVIDIA H200. A product of 64 x 512 by 512 x 2048 takes a microsecond longer with half the depth, and a
#: fifth of a microsecond longer with four rows per item.
TILE = QuadTile(32, 32, 64, 8)
#: Half of `TILE`, used if whole tiles would leave half of the compute units idle. Sums are bitwise equal to the sums
#: that whole tiles produce.
HALF_TILE = QuadTile(16, 32, 64, 8, item_rows=4)
#: The tile for tensor cores, and how many tiles of each matrix are read at once.
_TENSOR_TILE, _STEPS = QuadTile(32, 32, 128, 8, tensor=True), 4
#: Minimum number of terms in a part.
PART = 512
#: Upper bound on the number of parts. There are also at most as many parts as compute units.
_MOST_PARTS = 1 << 10
#: The classes of products that use the kernels of this module, for each value of the context's option `quad_tiles`.
_CLASSES = {"few": frozenset(["tiny"]), "all": frozenset(CLASSES), "none": frozenset[str]()}


def quad_kernel(tile: QuadTile, b_along: bool) -> Kernel:
    """Return the kernel for a right matrix with contiguous terms if `b_along` is true, else with contiguous columns."""
    return product_kernel(
        _with_statements("MATMUL"),
        "float32",
        **tile.words(),
        MATMUL=tile.kernel_name(b_along),
        B_ALONG=int(b_along),
        TEAM=tile.items // tile.splits,
        PITCH=tile.pitch,
        LOCAL_QUADS=tile.local_quads(b_along),
    )


def tensor_quad_kernel(b_along: bool, instructions: InstructionSet) -> Kernel:
    """Return the kernel that multiplies in TF32 on tensor cores."""
    tile, exchanged = _TENSOR_TILE, instructions.exchanged_words
    name, quads = tile.kernel_name(b_along), tile.local_quads(b_along)
    # A kernel with assembly can be merged only if the macro PTX marks the assembly as non-blocking.
    called = multiply_add_function(f"_{name}", instructions).replace("asm volatile", "PTX")
    return product_kernel(
        called + _with_statements("MATMUL_TF32"),
        "float32",
        **tile.words(),
        **{"MATMUL_TF32": name, "MULTIPLY_ADD": f"multiply_add_{name}", "B_ALONG": int(b_along), "AHEAD": _STEPS},
        **{"ROUNDING": ROUNDING, "TERMS": tile.depth},
        LOCAL_QUADS=quads + exchanged * tile.items // _QUAD,
        EXCHANGE=f"(__local uint *)(memory + {quads})" if exchanged else "0",
    )


def _with_statements(kernel: str) -> str:
    code = functions("gemm/quad_tiles.cl")
    shared = ("find_tile", "find_far_tile", "read_added", "store_sums")
    return filled(code[kernel], **{name.upper(): body(code[name]) for name in shared})


def choices(context: Context, request: Request) -> list[Choice[GemmPlan]]:
    """Return the choice that computes a small product with vector loads, with or without tensor cores."""
    profile, options, problem = context.profile, context.options, request.problem
    if profile.runs_items_serially or request.dtype != "float32" or not request.is_aligned:
        return []
    name = classify(problem.batch, problem.m, problem.n, profile.compute_units)
    if name not in _CLASSES[options.quad_tiles] or not is_default(context, "float32", name):
        return []
    if not reads_quads(problem) or needs_64bit_index(problem):
        return []
    by_tensor_cores = request.precision == "default" and profile.has_tensor_cores and problem.k >= FEW_TERMS
    tile = TILE if options.quad_tile is None else QuadTile(*options.quad_tile)
    tile, b_along = _TENSOR_TILE if by_tensor_cores else tile, problem.b[2] != 1
    if profile.max_local_size < tile.items or profile.local_memory_bytes < tile.local_quads(b_along) * _QUAD_NBYTES:
        return []

    def kernels() -> list[Kernel]:
        if by_tensor_cores:
            needed = [tensor_quad_kernel(b_along, instructions_of(context))]
        else:
            needed = [quad_kernel(each, b_along) for each in ((TILE, HALF_TILE) if tile == TILE else (tile,))]
        return [*needed, total_kernel("float32")]

    planned = plan(problem, profile.compute_units, tile)
    return [Choice("a small product", planned, kernels=kernels)]


@dataclass(frozen=True)
class Halves:
    """A launch with half tiles; its kernel is in the same translation unit as the kernel for whole tiles."""

    kernel: str
    groups: int
    args: tuple[Any, ...]


def half_kernel(name: str) -> str | None:
    """Return the name of the `HALF_TILE` kernel that corresponds to a `TILE` kernel; None for other kernels."""
    return next((HALF_TILE.kernel_name(along) for along in (False, True) if name == TILE.kernel_name(along)), None)


def halves(name: str, args: Sequence[Any]) -> Halves | None:
    """Return the half-tile launch that replaces a launch; None unless the launch uses `TILE` with unsplit sums."""
    kernel = half_kernel(name)
    launch = retiled(args[:2], HALF_TILE) if kernel else None
    return Halves(kernel, launch[0], (*launch[1], *args[2:])) if kernel and launch else None


def reads_quads(problem: Problem) -> bool:
    """Return whether both matrices consist of aligned quads, provided that their first elements are aligned."""
    along = _are_quads(problem.a, 2, 1) and problem.k % _QUAD == 0 and problem.k > 0
    by_terms, by_columns = _are_quads(problem.b, 1, 2), _are_quads(problem.b, 2, 1) and problem.n % _QUAD == 0
    return along and (by_columns if problem.b[2] == 1 else by_terms)


def _are_quads(steps: Sequence[int], near: int, far: int) -> bool:
    return steps[near] == 1 and steps[far] % _QUAD == 0 and steps[0] % _QUAD == 0


def needs_64bit_index(problem: Problem) -> bool:
    """Return whether a product needs 64-bit indexes, because of its strides or its number of elements."""
    p = problem
    shapes = ((p.m, p.k, p.a), (p.k, p.n, p.b), (p.m, p.n, p.y), (p.m, p.n, p.z))
    reach = max(rows * abs(steps[1]) + columns * abs(steps[2]) for rows, columns, steps in shapes)
    return max(reach, p.batch * p.m * p.n * _MOST_PARTS) >= 1 << 31


def plan(problem: Problem, units: int, tile: QuadTile) -> GemmPlan:
    """Return the launches that compute a product with tiles, on a device with `units` compute units."""
    name, parts = tile.kernel_name(problem.b[2] != 1), parts_of(problem, tile, units)
    return by_tiles(problem, name, tile, parts, has_divisors=True)


def parts_of(problem: Problem, tile: QuadTile, units: int) -> int:
    """Return the number of parts into which to split sums so that tiles occupy all compute units."""
    return max(min(units // problem.tiles(tile), problem.k // PART), 1)

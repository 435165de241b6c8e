"""Small products of float32 on a GPU whose numbers are read four at a time: the kernels, and when they are used.

Products of a few tiles, such as those of a recurrent net's step, take as long as a tile does: an item waits for memory,
and there are too few others to compute meanwhile. So an item reads four numbers of each matrix at once, keeps those of
the next tiles in registers until the tile before is done, and has more sums for what it reads from local memory: the
rest is as in `gpu.py`, with items that share the terms of sums. There is no code for what is not aligned, which would
take registers: such products have the kernels of `gpu.py`.

Below the highest precision, tensor cores multiply where a device has them. Each 32 items have fragments of all rows and
columns of a tile, for some of the terms, and read them from global memory: nobody else of the group needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optdb.codegen.gemm.blocks import is_default
from optdb.codegen.gemm.families import Choice, KernelChoice, Request
from optdb.codegen.gemm.gpu import parts_of
from optdb.codegen.gemm.launches import (
    BATCH,
    DIVISORS,
    PARTS,
    GemmPlan,
    by_tiles,
    pack,
    product_kernel,
    reciprocal,
    wide_total_kernel,
)
from optdb.codegen.gemm.problem import CLASSES, Problem, classify
from optdb.codegen.gemm.tensor_cores import FEW_TERMS
from optdb.codegen.gemm.tensor_kernels import EXCHANGED_WORDS, ROUNDING, WARP, multiply_add_function
from optdb.codegen.kernels import Kernel
from optdb.codegen.source import body, filled, functions
from optdb.runtime.context_options import Instructions

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Numbers that are read at once, and their bytes.
_QUAD, _QUAD_NBYTES = 4, 16


@dataclass(frozen=True)
class QuadTile:
    """The tile that a group computes; each of its items has some rows of four sums."""

    rows: int
    cols: int
    #: How many terms of each sum are in local memory at a time.
    depth: int
    #: How many items share the terms of each sum.
    splits: int
    item_rows: int = 8

    @property
    def items(self) -> int:
        """Work items in a group."""
        return self.rows * self.cols // (self.item_rows * _QUAD) * self.splits

    @property
    def pitch(self) -> int:
        """Quads of a row in local memory, one of them a gap: so rows lie in different banks."""
        return self.depth // _QUAD + 1

    def local_quads(self, b_along: bool) -> int:
        """Return how many quads a group keeps in local memory: two tiles of each matrix, or the parts of all sums."""
        right = self.cols * self.pitch if b_along else self.depth * self.cols // _QUAD
        return max(2 * (self.rows * self.pitch + right), self.splits * self.rows * self.cols // _QUAD)

    def kernel_name(self, b_along: bool) -> str:
        """Return the name of the kernel for right matrices whose terms, or else whose columns, stand side by side."""
        return f"matmul_{self.rows}x{self.cols}x{self.depth}_quads_{'nt'[b_along]}"


#: Measured on an NVIDIA H200. Of half as many terms, a product of 64 x 512 by 512 x 2048 takes a microsecond more, and
#: with four rows for each item a fifth of one.
TILE = QuadTile(32, 32, 64, 8)
#: Half of a tile, where whole ones leave half of the units idle. Sums are the same in all bits.
HALF_TILE = QuadTile(16, 32, 64, 8, item_rows=4)
#: The rows and columns of a tile on tensor cores, the items of a group, and how many steps these read at once.
_TENSOR_SIDE, _TENSOR_ITEMS, _STEPS = 32, 256, 4
#: Terms that each 32 items multiply in a step.
_WARP_TERMS = 16
#: Parts of sums are fewer than these: the units of any device.
_MOST_PARTS = 1 << 10
#: The classes of products that read quads, by the option of a context.
_CLASSES = {"few": frozenset(["tiny"]), "all": frozenset(CLASSES), "none": frozenset[str]()}


def quad_kernel(tile: QuadTile, b_along: bool) -> Kernel:
    """Return the kernel for right matrices whose terms, or else whose columns, stand side by side."""
    words: dict[str, str | int] = {"ROWS": tile.rows, "COLS": tile.cols, "DEPTH": tile.depth, "SPLITS": tile.splits}
    words |= {"MATMUL": tile.kernel_name(b_along), "ITEMS": tile.items, "B_ALONG": int(b_along)}
    return product_kernel(
        _with_statements("MATMUL"),
        "float32",
        **words,
        ITEM_ROWS=tile.item_rows,
        TEAM=tile.items // tile.splits,
        PITCH=tile.pitch,
        TURNS=max(tile.rows * tile.cols // _QUAD // tile.items, 1),
        LOCAL_QUADS=tile.local_quads(b_along),
    )


def tensor_quad_kernel(b_along: bool, instructions: Instructions) -> Kernel:
    """Return the kernel that multiplies numbers of TF32 by tensor cores."""
    warps, name = _TENSOR_ITEMS // WARP, _tensor_name(b_along)
    sums = _tensor_quads()
    is_emulated = instructions == "emulated"
    # Bodies of kernels that others run have no other assembly: the word tells that it waits for nobody.
    called = multiply_add_function(f"_{name}", instructions).replace("asm volatile", "PTX")
    sizes = {"ROWS": _TENSOR_SIDE, "COLS": _TENSOR_SIDE, "ITEMS": _TENSOR_ITEMS, "SPLITS": warps, "AHEAD": _STEPS}
    words = sizes | {"MATMUL_TF32": name, "MULTIPLY_ADD": f"multiply_add_{name}", "B_ALONG": int(b_along)}
    return product_kernel(
        called + _with_statements("MATMUL_TF32"),
        "float32",
        **words,
        ROUNDING=ROUNDING,
        TERMS=warps * _WARP_TERMS,
        TURNS=_TENSOR_SIDE * _TENSOR_SIDE // _QUAD // _TENSOR_ITEMS,
        LOCAL_QUADS=sums + EXCHANGED_WORDS * _TENSOR_ITEMS // _QUAD * is_emulated,
        EXCHANGE=f"(__local uint *)(memory + {sums})" if is_emulated else "0",
    )


#: Statements that kernels share.
_STATEMENTS = ("find_tile", "find_far_tile", "read_added", "store_sums")


def _with_statements(kernel: str) -> str:
    """Return the code of a kernel, with the statements that both have."""
    code = functions("gemm/quad_tiles.cl")
    statements = {name.upper(): body(code[name]) for name in _STATEMENTS}
    return filled(code[kernel], **statements)


def _tensor_quads() -> int:
    """Return how many quads of local memory have the parts of all sums."""
    return _TENSOR_ITEMS // WARP * _TENSOR_SIDE * _TENSOR_SIDE // _QUAD


def _tensor_name(b_along: bool) -> str:
    return f"matmul_{_TENSOR_SIDE}x{_TENSOR_SIDE}_tf32_quads_{'nt'[b_along]}"


def choices(context: Context, request: Request) -> Sequence[Choice]:
    """Return how a small product is computed whose numbers are read by fours: by tensor cores, or by items alone."""
    profile, options, problem = context.profile, context.options, request.problem
    if profile.runs_items_serially or request.dtype != "float32" or not request.is_aligned:
        return []
    name = classify(problem.batch, problem.m, problem.n, profile.compute_units)
    if name not in _CLASSES[options.quad_tiles] or not is_default(context, "float32", name):
        return []
    if not reads_quads(problem) or is_far(problem):
        return []
    by_tensor_cores = request.precision == "default" and profile.has_tensor_cores and problem.k >= FEW_TERMS
    tile = TILE if options.quad_tile is None else QuadTile(*options.quad_tile)
    b_along = problem.b[2] != 1
    items, quads = (_TENSOR_ITEMS, _tensor_quads()) if by_tensor_cores else (tile.items, tile.local_quads(b_along))
    if profile.max_local_size < items or profile.local_memory_bytes < quads * _QUAD_NBYTES:
        return []

    def kernels() -> list[Kernel]:
        if by_tensor_cores:
            needed = [tensor_quad_kernel(b_along, options.instructions)]
        else:
            needed = [quad_kernel(each, b_along) for each in ((TILE, HALF_TILE) if tile == TILE else (tile,))]
        return [*needed, wide_total_kernel("float32")]

    planned = plan(problem, profile.compute_units, tile, by_tensor_cores)
    return [KernelChoice("a small product", planned, kernels, request)]


@dataclass(frozen=True)
class Halves:
    """What a launch by halves of tiles takes."""

    #: The name, which a unit has beside that for whole tiles.
    kernel: str
    groups: int
    args: tuple[Any, ...]


def half_kernel(name: str) -> str | None:
    """Return the name of the kernel by halves of tiles, for that by whole ones; None for another kernel."""
    return next((HALF_TILE.kernel_name(along) for along in (False, True) if name == TILE.kernel_name(along)), None)


def halves(name: str, args: Sequence[Any]) -> Halves | None:
    """Return what computes a product by halves of tiles, in place of a launch by whole ones; None for another launch.

    A launch of other kernels that runs these as a part of it has room for them or not, as only that launch knows.

    Parameters
    ----------
    name : str
        Of the kernel.
    args : sequence
        What it is launched with.
    """
    kernel = half_kernel(name)
    if kernel is None:
        return None
    (m, n, *_), numbers = (list(packed.item()) for packed in args[:2])
    if numbers[PARTS] > 1:
        return None
    across, down = -(-n // HALF_TILE.cols), -(-m // HALF_TILE.rows)
    numbers[DIVISORS] = map(reciprocal, (across, down))
    return Halves(kernel, across * down * numbers[BATCH], (args[0], pack(*numbers), *args[2:]))


def reads_quads(problem: Problem) -> bool:
    """Tell whether the numbers of both matrices lie in aligned fours, if the matrices begin so."""
    along = _are_quads(problem.a, 2, 1) and problem.k % _QUAD == 0 and problem.k > 0
    by_terms, by_columns = _are_quads(problem.b, 1, 2), _are_quads(problem.b, 2, 1) and problem.n % _QUAD == 0
    return along and (by_columns if problem.b[2] == 1 else by_terms)


def _are_quads(steps: Sequence[int], near: int, far: int) -> bool:
    return steps[near] == 1 and steps[far] % _QUAD == 0 and steps[0] % _QUAD == 0


def is_far(problem: Problem) -> bool:
    """Tell whether numbers of a matrix are so far apart, or so many, that kernels would need longer indexes."""
    p = problem
    shapes = ((p.m, p.k, p.a), (p.k, p.n, p.b), (p.m, p.n, p.y), (p.m, p.n, p.z))
    reach = max(rows * abs(steps[1]) + columns * abs(steps[2]) for rows, columns, steps in shapes)
    return max(reach, p.batch * p.m * p.n * _MOST_PARTS) >= 1 << 31


def plan(problem: Problem, units: int, tile: QuadTile, by_tensor_cores: bool = False) -> GemmPlan:
    """Return the launches that compute a product by tiles, on a device of `units` compute units."""
    b_along = problem.b[2] != 1
    rows, cols = (_TENSOR_SIDE, _TENSOR_SIDE) if by_tensor_cores else (tile.rows, tile.cols)
    tiles, divisors = problem.tiles(rows, cols), (-(-problem.n // cols), -(-problem.m // rows))
    parts = parts_of(tiles, problem.k, tile.splits, units)
    if by_tensor_cores:
        terms = _TENSOR_ITEMS // WARP * _WARP_TERMS
        return by_tiles(problem, _tensor_name(b_along), tiles, _TENSOR_ITEMS, parts, terms, divisors)
    return by_tiles(problem, tile.kernel_name(b_along), tiles, tile.items, parts, tile.depth, divisors)

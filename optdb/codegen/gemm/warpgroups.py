"""Matrix products on tensor cores with warpgroup instructions and bulk copies.

NVIDIA GPUs of compute capability 9.0 multiply fastest with instructions that 128 items execute together (``wgmma``),
and that read tiles of both matrices from local memory. An additional item copies the tiles, some stages ahead: each of
its instructions copies a box of a matrix. An instruction that copies a box needs a description of the matrix (a tensor
map). Each group writes the maps of its matrices, because OpenCL has no function that creates maps.

Each row of a box has 128 contiguous bytes, and begins at a multiple of 16 bytes. A matrix that is stored differently is
packed first, so that its terms are contiguous. In TF32, the instructions need contiguous terms. If the terms of the
left matrix are not contiguous, items load its tiles into registers, because the instructions can also read the left
tile from registers. If the terms of the right matrix are not contiguous, the transposed product is computed.

References
----------
NVIDIA, "Parallel Thread Execution ISA" (wgmma.mma_async, cp.async.bulk.tensor, tensormap.replace, mbarrier).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from optdb.codegen.gemm.families import Choice, Request
from optdb.codegen.gemm.launches import LAUNCH_S, GemmPlan, Launch, by_tiles, pack, product_kernel, total_kernel
from optdb.codegen.gemm.problem import ARITHMETIC, Along, Arithmetic, GroupTile, Problem, dtype_of
from optdb.codegen.gemm.tensor_cores import (
    BAND,
    ROUNDING,
    instructions_of,
    kernel_name,
    memory_words,
    with_tile_found,
)
from optdb.codegen.gemm.tuning_table import measured
from optdb.codegen.kernels import Kernel
from optdb.codegen.source import body, filled, functions, functions_in
from optdb.runtime.context_options import InstructionSet

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Number of work items in a warpgroup, and number of rows that a warpgroup multiplies at a time.
_WARPGROUP, _ROWS = 128, 64
#: Size of a word, in bytes, and the number of bytes of which strides and addresses of matrices must be multiples.
_WORD, _ALIGNMENT = 4, 16
#: Number of words in each row of a box, and number of words in a tensor map.
_DEPTH, _MAP = 32, 32
#: Number of rows that a work group of the packing kernel packs, and the size of this work group.
_PACKED, _PACKING = 64, 256

#: All combinations of whether the terms of the left and of the right matrix are contiguous.
LAYOUTS = ((True, True), (True, False), (False, True), (False, False))

#: Placeholders for each arithmetic: the suffix of the instruction's name, the type of elements in tensor maps, and the
#: number of terms in a word.
_WORDS: dict[Arithmetic, dict[str, Any]] = {
    "tf32": {"TYPES": "k8.f32.tf32.tf32", "ELEMENT_TYPE": 11, "TERMS_OF_WORD": 1},
    "float16": {"TYPES": "k16.f32.f16.f16", "ELEMENT_TYPE": 6, "TERMS_OF_WORD": 2},
}
#: C expressions for the bits of a number in a packed matrix, and for the bits that are multiplied.
_BITS = {
    "tf32": ("as_uint(x)", f"(as_uint((x) * {ROUNDING}) & 0xffffe000)"),
    "float16": ("(x).bits", "(x).bits"),
}
#: Two statements: one of three warpgroups executes the first and gives up registers; the other two execute the second
#: and take registers. Items begin with 168 registers; afterwards, they have 40 in the first warpgroup, and 232 in the
#: others.
_REGISTERS = tuple(
    f'asm volatile("//@ setmaxnreg.{change}.sync.aligned.u32 {count};" : : : "memory");'
    for change, count in (("dec", 40), ("inc", 232))
)


@dataclass(frozen=True)
class WarpgroupTile(GroupTile):
    """A tile that warpgroups multiply.

    There are at most 256 rows and columns. Columns are a multiple of 64, and so are the rows of each warpgroup.
    """

    #: Number of words of each row in a stage; kernels support only the default.
    depth: int = _DEPTH
    #: Number of stages in local memory, at least two.
    stages: int = 4
    #: Number of warpgroups that share the rows.
    warpgroups: int = 2

    @property
    def name(self) -> str:
        """The prefix of the kernels' names."""
        return f"warpgroups_{self.rows}x{self.cols}_{self.stages}_{self.warpgroups}"

    @property
    def items(self) -> int:
        """The work-group size, including an additional warpgroup, in which one item copies tiles."""
        return (self.warpgroups + 1) * _WARPGROUP

    @property
    def resident(self) -> int:
        """The number of work groups that run on a compute unit at the same time."""
        return 2 if self.warpgroups == 1 and self.cols == _ROWS else 1

    @property
    def stage_words(self) -> int:
        """The number of words in a stage."""
        return (self.rows + self.cols) * self.depth

    @property
    def local_bytes(self) -> int:
        """A group's local memory in bytes."""
        return self.stages * (self.stage_words * _WORD + 16) + 2 * _MAP * _WORD


class TileTimes(NamedTuple):
    """How many seconds a compute unit needs for the steps of computing a tile."""

    #: The time to multiply one stage.
    stage: float
    #: The time to begin a tile and to store its results.
    tile: float


#: The available tiles, with the times measured on an NVIDIA H200 in TF32 and in float16.
_TILES = {
    WarpgroupTile(128, 256): (TileTimes(0.59e-6, 4.5e-6), TileTimes(0.575e-6, 3.52e-6)),
    WarpgroupTile(128, 192, stages=5): (TileTimes(0.48e-6, 4.5e-6), TileTimes(0.452e-6, 3.87e-6)),
    WarpgroupTile(128, 128, stages=6): (TileTimes(0.363e-6, 3.0e-6), TileTimes(0.328e-6, 1.29e-6)),
    WarpgroupTile(64, 128, stages=6, warpgroups=1): (TileTimes(0.287e-6, 1.9e-6), TileTimes(0.201e-6, 0.71e-6)),
    WarpgroupTile(64, 64, stages=6, warpgroups=1): (TileTimes(0.305e-6, 1.6e-6), TileTimes(0.277e-6, 0.1e-6)),
}
#: Maps an arithmetic and a tile to the tile's default times.
DEFAULTS: Mapping[Arithmetic, Mapping[WarpgroupTile, TileTimes]] = {
    "tf32": {tile: times for tile, (times, _) in _TILES.items()},
    "float16": {tile: times for tile, (_, times) in _TILES.items()},
}
#: Seconds from the start of a launch until the first tile is multiplied, and bytes per second that the kernel that adds
#: partial sums reads and writes.
_BEGIN, _BYTES = 7e-6, 3e12
#: A product is left to other kernels if fewer than 1 / `_BUSY` of the compute units would get one of the smallest
#: tiles.
_SMALLEST, _BUSY = WarpgroupTile(64, 64), 4
#: Copies of matrices may take up to 1 / `_SHARE` of the device's memory.
_SHARE = 16
#: Sums are divided into at most this many parts, each of which has at least this many stages.
_MOST_PARTS, _FEW_STAGES = 8, 8


def choices(context: Context, request: Request) -> list[Choice[GemmPlan]]:
    """Return one choice for each tile; an empty list if the device lacks the instructions or would be mostly idle."""
    profile, problem, is_required = context.profile, request.problem, context.options.warpgroup_tiles == "all"
    arithmetic = ARITHMETIC.get((request.dtype, request.precision))
    if arithmetic is None or arithmetic not in DEFAULTS or not problem.k or not is_possible(context):
        return []
    most_tiles = problem.tiles(_SMALLEST) * max(_parts(problem, arithmetic))
    if not is_required and (problem.is_too_small or _BUSY * most_tiles < profile.compute_units):
        return []
    most = min(profile.global_memory_bytes // _SHARE, profile.max_allocation_bytes)
    found = []
    for tile, times in times_of(context, arithmetic).items():
        groups = tile.resident * profile.compute_units
        seconds, parts = min(
            (_seconds(problem, arithmetic, tile, times, groups, parts), parts) for parts in _parts(problem, arithmetic)
        )
        planned = plan(problem, arithmetic, tile, groups, parts, request.is_aligned)
        copied = _WORD * (planned.memory + sum(planned.copies.values()))
        if copied > most and not is_required:
            continue
        needed = functools.partial(kernels_of, planned, tile, arithmetic, context)
        # The estimated time omits packing, which takes equally long with each tile.
        found.append(Choice(f"a product by {arithmetic}, {tile.name}", planned, seconds, needed))
    return found


def is_possible(context: Context) -> bool:
    """Return whether a device has the instructions, or emulates them."""
    return context.profile.has_warpgroup_products or context.options.warpgroup_tiles == "all"


def times_of(context: Context, arithmetic: Arithmetic) -> Mapping[WarpgroupTile, TileTimes]:
    """Return the tiles that fit a device, with measured or default times.

    If the context's options name a tile, only this tile is returned.
    """
    required = context.options.warpgroup_tile
    if required is not None:
        return {WarpgroupTile(*required): TileTimes(0.0, 0.0)}
    found, most = measured(context, table_class(arithmetic)), context.profile.most_local_bytes
    return {
        tile: TileTimes(*found[tile.name]) if len(found.get(tile.name, ())) == len(TileTimes._fields) else times
        for tile, times in DEFAULTS[arithmetic].items()
        if tile.local_bytes <= most
    }


def table_class(arithmetic: Arithmetic) -> str:
    """Return the name under which the tuning table keeps the times of the tiles for an arithmetic."""
    return f"{arithmetic} warpgroups"


def _parts(problem: Problem, arithmetic: Arithmetic) -> range:
    """Return the possible numbers of parts into which a product's sums can be divided."""
    stages = problem.k // terms_of(arithmetic, _DEPTH)
    return range(1, max(min(_MOST_PARTS, stages // _FEW_STAGES), 1) + 1)


def _seconds(
    problem: Problem, arithmetic: Arithmetic, tile: WarpgroupTile, times: TileTimes, groups: int, parts: int
) -> float:
    """Return the estimated time of a product, including the time for adding partial sums."""
    stages = math.ceil(problem.k / parts / terms_of(arithmetic, tile.depth))
    rounds = math.ceil(problem.tiles(tile) * parts / groups)
    multiplying = _BEGIN + rounds * (stages * times.stage + times.tile)
    if parts == 1:
        return multiplying
    return multiplying + LAUNCH_S + 2 * _WORD * parts * problem.batch * problem.m * problem.n / _BYTES


def kernels_of(planned: GemmPlan, tile: WarpgroupTile, arithmetic: Arithmetic, context: Context) -> list[Kernel]:
    """Return the kernels of a plan."""
    names, instructions = {launch.kernel for launch in planned.launches}, instructions_of(context)
    multiplying = [along for along in LAYOUTS if kernel_name(tile.name, arithmetic, along) in names]
    return [
        *(multiply_kernel(tile, arithmetic, along, instructions) for along in multiplying),
        pack_kernel(arithmetic),
        total_kernel(dtype_of(arithmetic)),
    ]


def pack_kernel(arithmetic: Arithmetic) -> Kernel:
    """Return the kernel that packs a matrix."""
    code = f"#define BITS(x) {_BITS[arithmetic][0]}\n" + functions("gemm/warpgroups.cl")["PACK"]
    return product_kernel(
        code, dtype_of(arithmetic), PACK=f"matmul_packed_{arithmetic}", LINES=_PACKED, **_WORDS[arithmetic]
    )


def multiply_kernel(tile: WarpgroupTile, arithmetic: Arithmetic, along: Along, instructions: InstructionSet) -> Kernel:
    """Return the kernel that multiplies with tiles of one shape, for one memory order of the matrices."""
    # Items load the tiles of the left matrix into registers.
    is_loaded, dtype = arithmetic == "tf32" and not along[0], dtype_of(arithmetic)
    text = _code(dtype, instructions)
    terms, sums, chosen = terms_of(arithmetic, tile.depth), tile.cols // 2, _WORDS[arithmetic]
    # For each matrix, the distance in words between the terms that consecutive instructions read (32 bytes of terms
    # each).
    steps = [8 if is_along else 8 * chosen["TERMS_OF_WORD"] * _DEPTH for is_along in along]
    macros = {
        "A_AT(block, step)": f"((block) * {_ROWS * _DEPTH} + (step) * {steps[0]})",
        "B_AT(step)": f"((step) * {steps[1]})",
        "STORED(i, begin, end, step)": instructions.stored,
        "WGMMA(instruction, count)": instructions.wgmma,
        "ROUNDED_BITS(x)": _BITS[arithmetic][1],
    }
    words: dict[str, Any] = {
        **{"MATMUL": kernel_name(tile.name, arithmetic, along), "BAND": BAND},
        "product_of_words": f"product_{dtype}",
        **{**tile.words(), "STAGE_WORDS": tile.stage_words, "STAGE_BYTES": tile.stage_words * _WORD},
        **{
            "CONSUMERS": tile.warpgroups * _WARPGROUP,
            "ROW_BLOCKS": tile.rows // tile.warpgroups // _ROWS,
            "MAP_WORDS": _MAP,
        },
        **{"TERMS": terms, "IS_LOADED": int(is_loaded), "A_ALONG": int(along[0]), "B_ALONG": int(along[1])},
        **{**chosen, "FACTORS": _factors(arithmetic, along)},
        "INSTRUCTION": f"wgmma.mma_async.sync.aligned.m{_ROWS}n{tile.cols}{chosen['TYPES']}",
        **{"REGISTERS": ", ".join(f"%{i}" for i in range(sums)), "LEFT": sums, "RIGHT": sums + 1},
        **{"THIRD": sums + 2, "FOURTH": sums + 3, "FIFTH": sums + 4, "SIXTH": sums + 5},
        **dict(zip(("GIVE_REGISTERS", "TAKE_REGISTERS"), _REGISTERS if tile.warpgroups == 2 else ("", ""))),
        "EXCHANGED_WORDS": instructions.exchanged_words * tile.items,
        "CONSTRAINTS": ", ".join(f'"+f"(c[{i}])' for i in range(sums)),
        **{"SIGNALS": instructions.signals, "SIGNAL_WORDS": instructions.signal_words},
        **memory_words(instructions),
    }
    text = "".join(f"#define {name} {value}\n" for name, value in macros.items()) + text
    return product_kernel(text, dtype, **words)


def _code(dtype: str, instructions: InstructionSet) -> str:
    """Return the text of the kernel that multiplies, and of the functions that it calls."""
    statements = ("begin_tile", "describe_matrices", "fill_stage", "multiply_stage")
    code, called = functions("gemm/warpgroups.cl"), dict(functions_in(instructions.warpgroups))
    parts = {name.upper(): body(code[name]) for name in statements}
    parts["BEGIN_TILE"] = with_tile_found(parts["BEGIN_TILE"], "number")
    words, halves = body(code["store_words"]), body(code["store_halves"])
    results = filled(words, TO="to", BITS="SCALED") if dtype == "float32" else halves
    sums = filled(words, TO="sum", BITS="as_uint")
    parts["STORE_TILE"] = filled(body(code["store_tile"]), STORE_SUMS=sums, STORE_RESULTS=results)
    tiles = filled(body(called.pop("run_tiles")), **parts)
    return "".join([*called.values(), code["exchange"], filled(code["MATMUL"], RUN_TILES=tiles, **parts)])


def _factors(arithmetic: Arithmetic, along: Along) -> str:
    """Return the last operands of ``wgmma``: two factors and, in float16, whether matrices are read across terms."""
    across = [int(not is_along) for is_along in along] if arithmetic == "float16" else []
    return ", ".join(map(str, [1, 1, *across]))


def terms_of(arithmetic: Arithmetic, words: int) -> int:
    """Return how many terms (numbers along the inner dimension) `words` 32-bit words contain."""
    return words * _WORD // np.dtype(dtype_of(arithmetic)).itemsize


class _Side(NamedTuple):
    """A matrix or a batch of matrices, as the kernel reads them."""

    #: The letter of the array; a capital letter names the packed copy.
    letter: str
    #: Strides of matrices, rows (columns for the right matrix) and terms, in elements; whether terms are contiguous.
    strides: tuple[int, int, int]
    is_along: bool
    #: The launch that packs the matrices, and the number of words that the launch writes; None and 0 if no copy is
    #: needed.
    packing: Launch | None = None
    words: int = 0


def _side(letter: str, problem: Problem, arithmetic: Arithmetic, is_aligned: bool, takes_across: bool) -> _Side:
    """Return how the kernel reads a matrix: in place if possible, otherwise from a packed copy."""
    p = problem
    rows, (matrix, row, term) = (p.m, p.a) if letter == "a" else (p.n, (p.b[0], p.b[2], p.b[1]))
    matrix = matrix if p.batch > 1 else 0
    unit = terms_of(arithmetic, _ALIGNMENT // _WORD)
    is_along = term == 1
    outer = row if is_along else term
    is_box = outer > 0 and matrix >= 0 and outer % unit == matrix % unit == 0
    if is_aligned and is_box and (is_along or (row == 1 and takes_across)):
        return _Side(letter, (matrix, row, term), is_along)
    lines, words = (p.batch if matrix else 1) * rows, -(-p.k // unit) * (_ALIGNMENT // _WORD)
    groups = -(-lines // _PACKED) * -(-words // _DEPTH)
    sizes = pack(rows, p.k, matrix, row, term, words, lines)
    packing = Launch(
        f"matmul_packed_{arithmetic}", (groups * _PACKING,), (_PACKING,), (sizes,), letter + letter.upper()
    )
    per_row = terms_of(arithmetic, words)
    return _Side(letter.upper(), (rows * per_row if matrix else 0, per_row, 1), True, packing, lines * words)


def plan(
    problem: Problem, arithmetic: Arithmetic, tile: WarpgroupTile, groups: int, parts: int = 1, is_aligned: bool = True
) -> GemmPlan:
    """Return the launches that compute a product: they pack matrices, multiply, and add partial sums.

    At most `groups` work groups run, each of which computes tiles one after the other. Each sum is split into at most
    `parts` parts.
    """
    left = _side("a", problem, arithmetic, is_aligned, True)
    right = _side("b", problem, arithmetic, is_aligned, True)
    if arithmetic == "tf32" and not right.is_along:
        if left.is_along or problem.m < problem.n:
            return plan(problem.transposed(), arithmetic, tile, groups, parts, is_aligned).swapped()
        right = _side("b", problem, arithmetic, is_aligned, False)
    b_matrix, b_col, b_term = right.strides
    as_read = replace(problem, a=left.strides, b=(b_matrix, b_term, b_col))
    name, terms = kernel_name(tile.name, arithmetic, (left.is_along, right.is_along)), terms_of(arithmetic, tile.depth)
    whole = by_tiles(as_read, name, tile, parts, terms)
    multiply, *adding = whole.launches
    groups = min(groups, multiply.items[0] // tile.items)
    arrays = multiply.arrays.translate(str.maketrans("ab", left.letter + right.letter)) + "M"
    multiply = replace(multiply, items=(groups * tile.items,), arrays=arrays)
    packing = [side.packing for side in (left, right) if side.packing]
    copies = {"A": left.words, "B": right.words, "M": 2 * _MAP * groups}
    return replace(whole, launches=[*packing, multiply, *adding], copies={k: v for k, v in copies.items() if v})

"""Matrix products on a GPU's tensor cores, for functions that request less than float32's precision.

Float32 numbers are rounded to TF32, which has ten bits of mantissa. Precision ``high`` splits each float32 number into
two TF32 numbers and multiplies three times. Sums are accumulated in float32.

Kernels are generated for a tile shape, from functions in ``tensor_cores.cl``. Tiles of both matrices are copied to
local memory asynchronously, several stages ahead, and each warp loads fragments from there.

References
----------
Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak
performance" (2022).

NVIDIA, "Parallel Thread Execution ISA" (mma.sync, ldmatrix, cp.async).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.gemm.families import Choice, Request
from optdb.codegen.gemm.launches import GemmPlan, by_tiles, product_kernel, total_kernel
from optdb.codegen.gemm.problem import ARITHMETIC, Along, Arithmetic, GroupTile, Problem, classify, dtype_of
from optdb.codegen.gemm.tuning_table import measured
from optdb.codegen.kernels import Kernel
from optdb.codegen.source import body, filled, functions, functions_in, text_of
from optdb.runtime.context_options import InstructionSet

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Work items in a warp.
WARP = 32
#: Multiplying a number by this factor rounds the number before it is truncated to TF32, and preserves numbers that TF32
#: represents exactly.
ROUNDING = "(1 + 0x1.555556p-12f)"
#: Size of an asynchronous copy, in bytes.
_PIECE = 16
#: Number of tile rows in a band. Groups that run at the same time compute neighbouring tiles of a band.
BAND = 8
#: Size of a word, in bytes.
_ITEM = 4
#: The types in the name of the instruction that multiplies fragments, by the dtype of the matrices.
_FRAGMENTS = {"float32": "m16n8k8.row.col.f32.tf32.tf32.f32", "float16": "m16n8k16.row.col.f32.f16.f16.f32"}


@dataclass(frozen=True)
class TensorBlock(GroupTile):
    """A tile that is computed on tensor cores.

    Lengths are powers of two, `depth` is 16 or 32, and neither rows nor columns outnumber the work items.
    """

    #: Number of stages in local memory.
    stages: int
    #: Size of the part of the result that each warp computes.
    warp_rows: int
    warp_cols: int

    @property
    def name(self) -> str:
        """The prefix of the kernels' names."""
        return f"tensor_{self.rows}x{self.cols}x{self.depth}_{self.stages}_{self.warp_rows}x{self.warp_cols}"

    @property
    def items(self) -> int:
        return (self.rows // self.warp_rows) * (self.cols // self.warp_cols) * WARP

    @property
    def stage_words(self) -> int:
        """The number of words in a stage."""
        return (self.rows + self.cols) * self.depth

    @property
    def local_bytes(self) -> int:
        """A group's local memory in bytes."""
        return self.stages * self.stage_words * _ITEM


@functools.cache
def ptx() -> InstructionSet:
    """Return the instruction set of NVIDIA GPUs, in which addresses in local memory are integers."""
    return InstructionSet(
        warps=text_of("gemm/tensor_cores_ptx.cl"),
        warpgroups=text_of("gemm/warpgroups_ptx.cl"),
        address="uint",
        address_of="(ulong)",
        signals="uint",
        signal_words=2,
        exchanged_words=0,
        stored="UNROLLED_RANGE(i, begin, end, step)",
        wgmma='asm volatile("//@ wgmma." instruction ".sync.aligned" count ";" : : : "memory")',
    )


def instructions_of(context: Context) -> InstructionSet:
    """Return the instructions for the kernels of a context."""
    return context.options.instructions or ptx()


def memory_words(instructions: InstructionSet) -> dict[str, str]:
    """Return the placeholders for addresses in local memory."""
    return {"MEMORY": instructions.address, "ADDRESS_OF": instructions.address_of}


def kernel_name(tile: str, arithmetic: Arithmetic, along: Along) -> str:
    """Return the name of a kernel that multiplies with the named tile."""
    return f"{tile}_{arithmetic}_{''.join('nt'[side] for side in along)}"


def tensor_kernel(block: TensorBlock, arithmetic: Arithmetic, along: Along, instructions: InstructionSet) -> Kernel:
    """Return the kernel that multiplies with tiles of one shape, for one memory order of the matrices."""
    code, dtype = functions("gemm/tensor_cores.cl"), dtype_of(arithmetic)
    # If terms are not contiguous, float32 fragments are loaded across the terms, and float16 fragments are transposed.
    across = "across" if dtype == "float32" else "transposed"
    left, right = ("along" if is_along else across for is_along in along)
    # A warp multiplies its rows in two halves, each with fragments of its own, unless both halves use the same
    # fragments or numbers are split (tf32x3).
    is_whole = block.warp_rows == 16 or (left == "across" and block.warp_rows < 64) or arithmetic == "tf32x3"
    parts = [
        body(code["positions"]),
        *functions_in(instructions.warps).values(),
        *_functions("A", left, block.rows, block.warp_rows),
        *_functions("B", right, block.cols, block.warp_cols),
        *(code[name] for name in ("load_A", "load_B", "rest_of", "multiply")),
        with_tile_found(code["MATMUL"]),
    ]
    piece, memory = _PIECE // np.dtype(dtype).itemsize, block.stages * block.stage_words
    vector = min(block.warp_cols // 8, 4) if right == "across" else 2
    words = {
        **{"MATMUL": kernel_name(block.name, arithmetic, along), "copy_number": f"copy_number_{dtype}"},
        **{**block.words(), "BAND": BAND, "PENDING": block.stages - 2},
        **{"PIECE": piece, "TERMS": block.depth * piece // 4, "A_ALONG": int(along[0]), "B_ALONG": int(along[1])},
        **{"A_ACROSS": int(left == "across"), "B_ACROSS": int(right == "across")},
        **{"IS_WHOLE": int(is_whole), "HALF_ROWS": max(block.warp_rows // 32, 1)},
        **{"STAGE_WORDS": block.stage_words, "TILE_WORDS": memory},
        "LOCAL_WORDS": memory + instructions.exchanged_words * block.items,
        **memory_words(instructions),
        **{"IS_ROUNDED": int(dtype == "float32"), "ROUNDING": ROUNDING},
        **{"FRAGMENTS": _FRAGMENTS[dtype], "product_of_words": f"product_{dtype}"},
        **{"IS_SPLIT": int(arithmetic == "tf32x3"), "SUMS": "sums_of_stage" if arithmetic == "tf32x3" else "acc"},
        # Results are stored one by one in float16, and in tf32x3, whose sums may be recomputed.
        **{"STORES_VECTORS": int(arithmetic == "tf32"), "VECTOR": vector},
        **{"VECTOR_TYPE": f"float{vector}", "VLOAD_VECTOR": f"vload{vector}"},
    }
    return product_kernel(filled("\n".join(parts), **words), dtype)


def with_tile_found(kernel: str, number: str = "get_group_id(0)") -> str:
    """Return a kernel's code with inlined statements that locate a tile; `number` is C code for the tile's number."""
    return filled(kernel, FIND_TILE=filled(body(functions("gemm/tensor_cores.cl")["find_tile"]), NUMBER=number))


def _functions(letter: str, kind: str, tile_length: int, warp_length: int) -> Iterator[str]:
    """Yield the functions that copy a matrix's tiles, and the functions that find positions of fragments.

    `kind` says how fragments are loaded. The lengths of tiles and warps are in rows of A or in columns of B.
    """
    code, is_along = functions("gemm/tensor_cores.cl"), kind == "along"
    names = {f"{what}_SIDE": f"{what}_{letter}" for what in ("piece", "whole", "wide", "single")}
    names |= {f"place_{kind}": f"place_{letter}"} | ({"load_near": f"load_near_{letter}"} if kind == "across" else {})
    words = {
        **{"SIDE": tile_length, "ALONG": int(is_along), "IS_LEFT": int(letter == "A"), "NEAR_ROWS": warp_length // 8},
        "LINE": "(DEPTH / 4)" if is_along else f"({tile_length} / PIECE)",
        "SWIZZLE": "SWIZZLED" if is_along else "EXCHANGED",
    }
    for name in names:
        yield filled(code[name], **names, **words)


def multiply_add_function(ending: str, instructions: InstructionSet) -> str:
    """Return the code of float32's ``multiply_add`` and any function it calls, with `ending` appended to each name."""
    code = functions_in(instructions.warps)
    called = [name for name in ("product_float32", "multiply_add") if name in code]
    words = {"TILE_WORDS": 0, "FRAGMENTS": _FRAGMENTS["float32"], "product_of_words": f"product_float32{ending}"}
    return filled("".join(code[name] for name in called), **words, **{name: name + ending for name in called})


#: Minimum number of terms in a part of a sum; a second launch adds the parts.
PART = 1024
#: Block shape for each class of products. Measured on an NVIDIA H100 and an H200.
_BLOCKS = {
    "square": TensorBlock(128, 128, 16, 3, 64, 64),
    "small": TensorBlock(64, 64, 32, 3, 32, 32),
    "tiny": TensorBlock(32, 32, 32, 3, 16, 16),
}

#: The name of the class of TF32 tiles in the tuning table. Its entries are `Rates`.
TILES = "tf32 tiles"
#: For each tile, the throughput of a compute unit with one resident work group, with two, and so on, in 1e12 operations
#: per second. A sequence has as many numbers as work groups fit on a compute unit.
Rates = Mapping[TensorBlock, Sequence[float]]
#: Rates on an NVIDIA H200; the first tile's rates were measured on an H100. Tiles with 32 terms take 96 or 64 KiB of
#: local memory.
DEFAULTS: Rates = {
    TensorBlock(128, 128, 32, 3, 64, 64): (1.05, 1.7),
    TensorBlock(128, 128, 32, 2, 64, 64): (1.05, 1.67),
    TensorBlock(128, 128, 16, 3, 64, 64): (1.0, 1.59),
    TensorBlock(128, 64, 16, 4, 64, 32): (0.72, 1.08, 1.22, 1.35),
    TensorBlock(64, 64, 32, 3, 64, 32): (0.55, 0.98, 1.1, 1.24),
}
#: The tile shapes that tuning measures.
CANDIDATES = (
    *DEFAULTS,
    TensorBlock(128, 128, 16, 3, 64, 32),
    TensorBlock(64, 128, 16, 4, 32, 64),
    TensorBlock(64, 64, 32, 3, 32, 32),
)
#: Float16 rates for one and for two work groups per compute unit, on an NVIDIA H200.
_FLOAT16_RATES = (1.8, 2.8)


def choices(context: Context, request: Request) -> list[Choice[GemmPlan]]:
    """Return one choice for each tile shape; the list is empty if a product does not benefit from tensor cores."""
    arithmetic = ARITHMETIC.get((request.dtype, request.precision))
    if arithmetic is None:
        return []
    problem, units = request.problem, context.profile.compute_units
    if not context.profile.has_tensor_cores or problem.is_too_small:
        return []
    rates = {_BLOCKS["square"]: _FLOAT16_RATES} if arithmetic == "float16" else rates_of(context)
    efforts = {block: _effort(problem, block, rates[block], units) for block in rates}
    name = classify(problem.batch, problem.m, problem.n, units)
    if arithmetic != "tf32" or name == "tiny":
        # Float16 products do not use the tiny tile, because their swizzle needs rows of eight pieces.
        is_small = arithmetic == "tf32x3" or (arithmetic == "float16" and name == "tiny")
        efforts = {_BLOCKS["small" if is_small else name]: min(efforts.values(), default=math.inf)}

    def kernels(block: TensorBlock) -> list[Kernel]:
        multiply = tensor_kernel(block, arithmetic, problem.along, instructions_of(context))
        return [multiply, total_kernel(dtype_of(arithmetic))]

    found = []
    for block in fitting(context, efforts):
        name, planned = f"a product by {arithmetic}, {block.name}", plan(problem, block, arithmetic, units)
        seconds = 2e-12 * problem.k * efforts[block]
        found.append(Choice(name, planned, seconds, functools.partial(kernels, block)))
    return found


def rates_of(context: Context) -> Rates:
    """Return the measured or default rates of the tile shapes that fit a device."""
    found = measured(context, TILES)
    rates = {block: found[block.name] for block in CANDIDATES if block.name in found}
    return {block: rates[block] for block in fitting(context, rates)} or {
        block: DEFAULTS[block] for block in fitting(context, DEFAULTS)
    }


def fitting(context: Context, blocks: Iterable[TensorBlock]) -> list[TensorBlock]:
    """Return the blocks whose work-group size and local memory a device supports."""
    profile = context.profile
    most_items, most_bytes = profile.max_local_size, profile.most_local_bytes
    return [block for block in blocks if block.items <= most_items and block.local_bytes <= most_bytes]


def _effort(problem: Problem, block: TensorBlock, rates: Sequence[float], units: int) -> float:
    """Return the estimated time that the compute unit with the most tiles needs for each term."""
    rounds, rest = divmod(-(-problem.tiles(block) // units), len(rates))
    last = rest / rates[rest - 1] if rest else 0.0
    return block.rows * block.cols * (rounds * len(rates) / rates[-1] + last)


def plan(problem: Problem, block: TensorBlock, arithmetic: Arithmetic, units: int) -> GemmPlan:
    """Return the launches that compute a product with tiles, on a device with `units` compute units."""
    parts = max(min(-(-units // problem.tiles(block)), problem.k // PART), 1)
    # The length of a part is a multiple of this number, so that rows that are aligned remain aligned in each part.
    terms = block.depth * (2 if arithmetic == "float16" else 1)
    return by_tiles(problem, kernel_name(block.name, arithmetic, problem.along), block, parts, terms)

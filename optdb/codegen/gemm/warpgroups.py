"""Products of packed matrices on tensor cores, with warpgroup instructions.

NVIDIA GPUs of compute capability 9.0 multiply fastest with instructions that 128 items execute together (``wgmma``).
The instructions require contiguous terms, so matrices are first rounded and packed in the layout of tiles in local
memory. A packed block of rows or columns consists of 16-byte pieces along the terms, and the pieces at the same
position in all rows are contiguous. One work item copies a stage with one instruction, and a barrier object signals
that the copy is complete.

References
----------
NVIDIA, "Parallel Thread Execution ISA" (wgmma.mma_async, cp.async.bulk, mbarrier).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from optdb.codegen.gemm.launches import LAUNCH_S, GemmPlan, Launch, by_tiles, pack, product_kernel
from optdb.codegen.gemm.problem import GroupTile, Problem
from optdb.codegen.gemm.tensor_kernels import BAND, MEMORY_WORDS, ROUNDING, Arithmetic, dtype_of, with_tile_found
from optdb.codegen.gemm.tuning_table import measured
from optdb.codegen.kernels import Kernel
from optdb.codegen.source import body, filled, functions
from optdb.runtime.context_options import Instructions

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Number of work items in a warpgroup, and number of rows that the warpgroup multiplies.
_WARPGROUP, _ROWS = 128, 64
#: Number of words in a 16-byte piece.
_PIECE = 4
#: Sizes of a word and of a barrier object, in bytes.
_WORD, _SIGNAL = 4, 8
#: Work-group size for packing, and number of pieces per row that a group copies.
_PACKING, _PIECES = 256, 8
#: Type of a barrier object's address, and the object's size in 8-byte words, by instruction set.
_SIGNALS = {"ptx": "uint", "emulated": "__local ulong *"}
_SIGNAL_WORDS = {"ptx": 1, "emulated": 3}


#: Placeholders for each arithmetic: the suffix of the instruction's name, the instruction's scale and transposition
#: operands, the bits of a number, and the type and the value of two neighbours in the result.
_WORDS: dict[Arithmetic, dict[str, str]] = {
    "tf32": {
        **{"TYPES": "k8.f32.tf32.tf32", "FACTORS": "1, 1, 1", "BITS": "as_uint(x[e * step])"},
        **{"PAIR": "float2", "PAIR_OF_SUMS": "(float2)(u, v)"},
    },
    "float16": {
        **{"TYPES": "k16.f32.f16.f16", "FACTORS": "1, 1, 1, 0, 0", "BITS": "x[e * step].bits"},
        **{"PAIR": "ushort2", "PAIR_OF_SUMS": "(ushort2)(ga_float2half(u).bits, ga_float2half(v).bits)"},
    },
}


@dataclass(frozen=True)
class PackedBlock(GroupTile):
    """A tile of packed matrices, with up to 256 columns; `cols` and `depth` (in words) are multiples of eight."""

    #: Number of stages in local memory.
    stages: int
    #: Number of warpgroups that share the rows.
    warpgroups: int

    @property
    def name(self) -> str:
        """The prefix of the kernels' names."""
        return f"packed_{self.rows}x{self.cols}x{self.depth}_{self.stages}_{self.warpgroups}"

    @property
    def items(self) -> int:
        return self.warpgroups * _WARPGROUP

    @property
    def stage_words(self) -> int:
        """The number of words in a stage."""
        return (self.rows + self.cols) * self.depth

    @property
    def local_bytes(self) -> int:
        """A group's local memory in bytes."""
        return self.stages * (self.stage_words * _WORD + _SIGNAL)


class Speed(NamedTuple):
    """The speed of multiplying and packing."""

    #: Arithmetic throughput of one compute unit, in 1e12 operations per second.
    multiplying: float
    #: Memory throughput of packing (reads and writes) on all units, in 1e9 bytes per second.
    packing: float


#: The fastest of eleven shapes on an NVIDIA H100: multiplying two 4096 x 4096 matrices in TF32 takes 344 us, and cuBLAS
#: takes 329 us.
BLOCK = PackedBlock(128, 256, 32, 4, 2)
#: Speeds on an NVIDIA H100. For two 4096 x 4096 matrices, multiplying takes 347 us in TF32 and 198 us in float16;
#: packing each matrix takes 50 us in TF32 and 42 us in float16.
DEFAULTS: Mapping[Arithmetic, Speed] = {"tf32": Speed(3.15, 2600.0), "float16": Speed(5.4, 1700.0)}
#: Packed matrices may take up to 1 / `_SHARE` of the device's memory.
_SHARE = 16


def block_of(context: Context) -> PackedBlock:
    """Return the tile for a context's products: the tile in the context's options, or else the fastest tile."""
    shape = context.options.packed_tile
    return BLOCK if shape is None else PackedBlock(*shape)


def is_possible(context: Context) -> bool:
    """Return whether a device can multiply packed matrices."""
    profile, is_required = context.profile, context.options.packed_tiles == "all"
    return (profile.has_warpgroup_products or is_required) and block_of(context).local_bytes <= profile.most_local_bytes


def suits(context: Context, problem: Problem, arithmetic: Arithmetic) -> bool:
    """Return whether a product can use packed matrices, and would keep most compute units busy."""
    if arithmetic not in DEFAULTS:
        return False
    if context.options.packed_tiles == "all":
        return True
    profile, block = context.profile, block_of(context)
    most = min(profile.global_memory_bytes // _SHARE, profile.max_allocation_bytes)
    is_busy = 2 * problem.tiles(block) > profile.compute_units
    return is_possible(context) and packed_bytes(problem, arithmetic, block) <= most and is_busy


def seconds(context: Context, problem: Problem, arithmetic: Arithmetic) -> float:
    """Return the estimated time for packing, and for multiplying on the compute unit with the most tiles."""
    block, speed = block_of(context), speed_of(context, arithmetic)
    rounds = -(-problem.tiles(block) // context.profile.compute_units)
    multiplying = 2e-12 * block.rows * block.cols * rounds * problem.k / speed.multiplying
    return multiplying + 2e-9 * packed_bytes(problem, arithmetic, block) / speed.packing + 3 * LAUNCH_S


def speed_of(context: Context, arithmetic: Arithmetic) -> Speed:
    """Return the measured or default speed of a device."""
    found = measured(context, packed_class(arithmetic)).get(block_of(context).name, ())
    return Speed(*found) if len(found) == len(Speed._fields) else DEFAULTS[arithmetic]


def packed_class(arithmetic: Arithmetic) -> str:
    """Return the problem class of products of packed matrices, for the tuning table."""
    return f"{arithmetic} packed"


def kernels(context: Context, arithmetic: Arithmetic) -> list[Kernel]:
    """Return the kernels of packed products."""
    return [pack_kernel(arithmetic), packed_kernel(block_of(context), arithmetic, context.options.instructions)]


def pack_kernel(arithmetic: Arithmetic) -> Kernel:
    """Return the kernel that packs a matrix."""
    code = functions("gemm/warpgroups.cl")
    rounding = body(code["round_to_tf32"]) if arithmetic == "tf32" else ""
    words = {
        **{"PACK": f"matmul_packed_{arithmetic}", "ITEMS": _PACKING, "PIECES": _PIECES, "ROWS": _PACKING // _PIECES},
        **{"PIECE": terms_of(arithmetic, _PIECE), "ROUNDING": ROUNDING, **_WORDS[arithmetic]},
    }
    return product_kernel(filled(code["PACK"], ROUND_WORDS=rounding), dtype_of(arithmetic), **words)


def packed_kernel(block: PackedBlock, arithmetic: Arithmetic, instructions: Instructions) -> Kernel:
    """Return the kernel that multiplies packed matrices with tiles of one shape.

    `instructions` selects the device's instructions, or functions that emulate them slowly.
    """
    code = functions("gemm/warpgroups.cl")
    text = "".join(functions(f"gemm/warpgroups_{instructions}.cl").values())
    if instructions == "emulated":
        emulated = functions("gemm/tensor_cores_emulated.cl")
        text = emulated["half_of"] + emulated[f"product_{dtype_of(arithmetic)}"] + text
    text += with_tile_found(filled(code["MATMUL"], STORE_PAIR=body(code["store_pair"])))
    sums = block.cols // 2
    words: dict[str, Any] = {
        **{"MATMUL": _kernel_name(block, arithmetic), "BAND": BAND},
        "product_of_words": f"product_{dtype_of(arithmetic)}",
        **{**block.words(), "STAGE_WORDS": block.stage_words, "STAGE_BYTES": block.stage_words * _WORD},
        **{"TERMS": terms_of(arithmetic, block.depth), "ROW_BLOCKS": block.rows // block.warpgroups // _ROWS},
        **_WORDS[arithmetic],
        "INSTRUCTION": f"wgmma.mma_async.sync.aligned.m{_ROWS}n{block.cols}{_WORDS[arithmetic]['TYPES']}",
        **{"REGISTERS": ", ".join(f"%{i}" for i in range(sums)), "LEFT": sums, "RIGHT": sums + 1},
        "CONSTRAINTS": ", ".join(f'"+f"(c[{i}])' for i in range(sums)),
        **{"SIGNALS": _SIGNALS[instructions], "SIGNAL_WORDS": _SIGNAL_WORDS[instructions]},
        **MEMORY_WORDS[instructions],
    }
    return product_kernel(text, dtype_of(arithmetic), **words)


def _kernel_name(block: PackedBlock, arithmetic: Arithmetic) -> str:
    return f"{block.name}_{arithmetic}"


def terms_of(arithmetic: Arithmetic, words: int) -> int:
    """Return the number of terms in `words` words."""
    return words * _WORD // np.dtype(dtype_of(arithmetic)).itemsize


class _PackedSide(NamedTuple):
    """A matrix or a batch of matrices after packing."""

    #: The launch that packs the matrices, and the number of words that the launch writes.
    packing: Launch
    words: int
    #: Strides of matrices, rows (columns for the right matrix) and terms, in elements.
    strides: tuple[int, int, int]


def _sides(problem: Problem, arithmetic: Arithmetic, block: PackedBlock) -> list[_PackedSide]:
    """Return both packed matrices, whose rows and terms are padded to whole blocks."""
    p, sides = problem, []
    pieces = -(-p.k // terms_of(arithmetic, block.depth)) * block.depth // _PIECE
    right = p.b[0], p.b[2], p.b[1]
    for letter, rows, strides, length in (("a", p.m, p.a, block.rows), ("b", p.n, right, block.cols)):
        padded = -(-rows // length) * length
        lines, row = (p.batch if strides[0] else 1) * padded, pieces * _PIECE
        groups = -(-lines // (_PACKING // _PIECES)) * -(-pieces // _PIECES)
        sizes = pack(rows, p.k, *strides, padded, pieces, length, lines)
        arrays = letter + letter.upper()
        packing = Launch(f"matmul_packed_{arithmetic}", (groups * _PACKING,), (_PACKING,), (sizes,), arrays)
        packed_strides = padded * row if strides[0] else 0, row, length * _PIECE // terms_of(arithmetic, _PIECE)
        sides.append(_PackedSide(packing, lines * row, packed_strides))
    return sides


def packed_bytes(problem: Problem, arithmetic: Arithmetic, block: PackedBlock) -> int:
    """Return the size of both matrices packed for a tile, in bytes."""
    return _WORD * sum(side.words for side in _sides(problem, arithmetic, block))


def plan(problem: Problem, arithmetic: Arithmetic, block: PackedBlock) -> GemmPlan:
    """Return the launches that compute a product: two that pack the matrices, and one that multiplies."""
    left, right = _sides(problem, arithmetic, block)
    b_matrix, b_col, b_term = right.strides
    packed = replace(problem, a=left.strides, b=(b_matrix, b_term, b_col))
    terms = terms_of(arithmetic, block.depth)
    (multiply,) = by_tiles(packed, _kernel_name(block, arithmetic), block, 1, terms).launches
    launches = [left.packing, right.packing, replace(multiply, arrays="AByz")]
    return GemmPlan(launches, copies={"A": left.words, "B": right.words})

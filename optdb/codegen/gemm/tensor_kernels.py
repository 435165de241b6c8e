"""Kernels for matrix products on a GPU's tensor cores, generated for a tile shape.

Tiles of both matrices are copied to local memory asynchronously, several stages ahead, and each warp loads fragments
from there. Kernels consist of functions in ``tensor_cores.cl``.

References
----------
NVIDIA, "Parallel Thread Execution ISA" (mma.sync, ldmatrix, cp.async).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from optdb.codegen.gemm.launches import product_kernel
from optdb.codegen.gemm.problem import GroupTile, Precision
from optdb.codegen.kernels import Kernel
from optdb.codegen.source import body, filled, functions
from optdb.runtime.context_options import Instructions

#: How a kernel multiplies: in TF32; in float32, with each number split into two TF32 numbers; or in float16.
Arithmetic = Literal["tf32", "tf32x3", "float16"]
#: Maps the dtype of the matrices and the precision to the arithmetic.
ARITHMETIC: dict[tuple[str, Precision], Arithmetic] = {
    ("float32", "default"): "tf32",
    ("float32", "high"): "tf32x3",
    ("float16", "default"): "float16",
    ("float16", "high"): "float16",
}
#: Products with fewer terms gain nothing from tensor cores.
FEW_TERMS = 16

#: Work items in a warp.
WARP = 32
#: Multiplying a number by this factor rounds the number before it is truncated to TF32, and preserves numbers that TF32
#: represents exactly.
ROUNDING = "(1 + 0x1.555556p-12f)"
#: Number of words that an instruction multiplies along the axis of the terms.
_STEP = 8
#: Size of an asynchronous copy, in bytes.
_PIECE = 16
#: Number of tile rows in a band; concurrent groups compute neighbouring tiles in a band.
BAND = 8
#: Size of a word, in bytes.
_ITEM = 4
#: Placeholders for local memory addresses, by instruction set: in PTX, addresses are integers.
MEMORY_WORDS: dict[Instructions, dict[str, str]] = {
    "ptx": {"MEMORY": "uint", "ADDRESS_OF": "(ulong)"},
    "emulated": {"MEMORY": "__local uint *", "ADDRESS_OF": ""},
}
#: The type of the instruction that multiplies fragments, by the dtype of the matrices.
_FRAGMENTS = {"float32": "m16n8k8.row.col.f32.tf32.tf32.f32", "float16": "m16n8k16.row.col.f32.f16.f16.f32"}
#: Number of words of local memory per work item; emulated instructions exchange fragments through them.
EXCHANGED_WORDS = 6


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


class _TileFactor(NamedTuple):
    """One matrix in a product, and how a kernel copies and loads it."""

    #: The suffix of the matrix's functions and the prefix of its placeholders.
    letter: Literal["A", "B"]
    #: Number of rows of the left matrix, or columns of the right matrix, in the tile and in a warp's part.
    tile_length: int
    warp_length: int
    #: Whether tiles are copied along the axis of the terms of sums.
    is_along: bool
    dtype: str

    @property
    def load_kind(self) -> str:
        """How fragments are loaded: along the terms, across them, or, for 16-bit numbers across them, transposed."""
        if self.is_along:
            return "along"
        return "across" if self.dtype == "float32" else "transposed"

    def places(self, block: TensorBlock) -> int:
        """Return the number of positions from which an item loads fragments."""
        kinds = {"along": block.depth // _STEP, "across": max(self.near // 4, 1), "transposed": self.near // 2}
        return kinds[self.load_kind]

    @property
    def near(self) -> int:
        """The number of neighbouring elements that an item loads if rows or columns are contiguous."""
        return self.warp_length // 8


def kernel_name(block: TensorBlock, arithmetic: Arithmetic, along: tuple[bool, bool]) -> str:
    """Return the name of a kernel; `along` says for each matrix whether terms are contiguous."""
    return f"{block.name}_{arithmetic}_{''.join('nt'[side] for side in along)}"


def dtype_of(arithmetic: Arithmetic) -> str:
    """Return the dtype of the matrices."""
    return "float16" if arithmetic == "float16" else "float32"


def tensor_kernel(
    block: TensorBlock, arithmetic: Arithmetic, along: tuple[bool, bool], instructions: Instructions
) -> Kernel:
    """Return the kernel that multiplies matrices in tiles of one shape, for one memory order of the matrices.

    `along` says for each matrix whether tiles are copied along the terms. `instructions` selects the device's
    instructions, or functions that emulate them slowly.
    """
    code, dtype = functions("gemm/tensor_cores.cl"), dtype_of(arithmetic)
    left = _TileFactor("A", block.rows, block.warp_rows, along[0], dtype)
    right = _TileFactor("B", block.cols, block.warp_cols, along[1], dtype)
    multiply = ["rest_of", "multiply_thrice"] if arithmetic == "tf32x3" else ["multiply_once"]
    parts = [
        *functions(f"gemm/tensor_cores_{instructions}.cl").values(),
        *(function for matrix in (left, right) for function in _functions(matrix, code)),
        *(code[name] for name in multiply),
        with_tile_found(code["MATMUL"]),
    ]
    piece, memory, vector = _PIECE // np.dtype(dtype).itemsize, block.stages * block.stage_words, _store_width(right)
    words = {
        **{"MATMUL": kernel_name(block, arithmetic, along), "copy_number": f"copy_number_{dtype}"},
        **{**block.words(), "BAND": BAND, "PENDING": block.stages - 2},
        **{"PIECE": piece, "TERMS": block.depth * piece // 4, "A_ALONG": int(along[0]), "B_ALONG": int(along[1])},
        **{"A_PLACES": left.places(block), "B_PLACES": right.places(block)},
        **{"STAGE_WORDS": block.stage_words, "TILE_WORDS": memory},
        "LOCAL_WORDS": memory + EXCHANGED_WORDS * block.items * (instructions == "emulated"),
        **MEMORY_WORDS[instructions],
        **{"MULTIPLY": multiply[-1], "IS_ROUNDED": int(dtype == "float32"), "ROUNDING": ROUNDING},
        **{"FRAGMENTS": _FRAGMENTS[dtype], "product_of_words": f"product_{dtype}"},
        **_stage_words(block, arithmetic),
        # Float16 results, and sums that may be recomputed, are not stored as vectors.
        **{"STORES_VECTORS": int(arithmetic == "tf32"), "VECTOR": vector},
        **{"VECTOR_TYPE": f"float{vector}", "VLOAD_VECTOR": f"vload{vector}"},
    }
    return product_kernel(_macros(block, arithmetic, left, right) + filled("\n".join(parts), **words), dtype)


def with_tile_found(kernel: str, number: str = "get_group_id(0)") -> str:
    """Return a kernel's code with the statements that locate the tile with a number inlined."""
    return filled(kernel, FIND_TILE=filled(body(functions("gemm/tensor_cores.cl")["find_tile"]), NUMBER=number))


#: Maps whether a tile is copied along the terms to the tile's layout; SIDE is the tile's length.
_LAYOUTS = {
    True: {
        **{"FAR": "i", "FAR_STEP": "across", "FAR_COUNT": "rows", "LINES": "ITEMS * 4 / DEPTH", "SWIZZLE": "SWIZZLED"},
        **{"NEAR": "l", "NEAR_COUNT": "terms", "NEAR_LENGTH": "TERMS", "LINE": "DEPTH / 4"},
    },
    False: {
        **{"FAR": "l", "FAR_STEP": "step", "FAR_COUNT": "terms", "LINES": "ITEMS * PIECE / SIDE"},
        **{"NEAR": "i", "NEAR_COUNT": "rows", "NEAR_LENGTH": "SIDE", "LINE": "SIDE / PIECE", "SWIZZLE": "EXCHANGED"},
    },
}
#: For the load kinds 'along' and 'transposed', the function that loads four registers, and the addresses in the left
#: and in the right matrix.
_KINDS = {
    "along": ("load_matrices", "at[l / 8] + i * 16 * DEPTH", "at[l / 8] + j * 8 * DEPTH"),
    "transposed": ("load_transposed", "at[i] + l * ROWS", "at[j / 2] + l * COLS"),
}
#: Expressions for an item's row and piece. True is for a left matrix loaded along the terms, or a right matrix loaded
#: transposed; False is for a left matrix loaded transposed, or a right matrix loaded along the terms.
_LANES = {True: ("lane % 16", "lane / 16"), False: ("lane % 8 + lane / 16 * 8", "lane / 8 % 2")}


def _functions(matrix: _TileFactor, code: Mapping[str, str]) -> Iterator[str]:
    """Yield the functions that copy tiles of a matrix, and those that load its fragments."""
    letter, kind, side = matrix.letter, matrix.load_kind, "left" if matrix.letter == "A" else "right"
    copies = {f"{what}_SIDE": f"{what}_{letter}" for what in ("piece", "whole", "wide", "single")}
    for name in copies:
        yield filled(filled(code[name], **copies, **_LAYOUTS[matrix.is_along]), SIDE=matrix.tile_length)
    loads, words = {f"place_{kind}": f"place_{letter}"}, {"SIDE": str(matrix.tile_length)}
    if kind == "across":
        near = "load_eight" if matrix.near == 8 else "load_few"
        loads |= {near: f"load_near_{letter}", f"load_{side}_across": f"load_{letter}"}
        words |= {"NEAR_ROWS": str(matrix.near), "LOAD_FEW": "load_two" if matrix.near == 2 else "load_four"}
    else:
        loads |= {f"load_{side}_KIND": f"load_{letter}"}
        words |= zip(("LOAD_FOUR", "LEFT_AT", "RIGHT_AT"), _KINDS[kind])
        words |= zip(("LANE_ROW", "LANE_PIECE"), _LANES[(side == "left") == (kind == "along")])
    for name in loads:
        yield filled(code[name], **loads, **words)


def _stage_words(block: TensorBlock, arithmetic: Arithmetic) -> dict[str, str]:
    """Return placeholders for a stage's sums, which are accumulated separately if numbers are split."""
    code, is_divided = functions("gemm/tensor_cores.cl"), arithmetic == "tf32x3"
    lengths = {"WARP_ROWS": block.warp_rows, "WARP_COLS": block.warp_cols}
    statements = {
        name.upper(): filled(body(code[name]), **lengths) if is_divided else ""
        for name in ("begin_stage", "end_stage", "repeat_nan")
    }
    return {"SUMS": "sums_of_stage" if is_divided else "acc", **statements}


def _store_width(right: _TileFactor) -> int:
    return min(right.near, 4) if right.load_kind == "across" else 2


def _macros(block: TensorBlock, arithmetic: Arithmetic, left: _TileFactor, right: _TileFactor) -> str:
    """Return macros that swizzle pieces in local memory, and that map rows and columns to fragments.

    Eight 16-byte pieces cover all banks once. Rows within one line of eight pieces share a permutation, and rows in the
    next line have a different permutation.
    """
    exchanged = "((l) % 2 * 3 + (l) / 2 % 2 * 4)" if left.dtype == "float32" else "((l) % 8)"
    # Rows are multiplied in two halves if each half has its own fragments, which are loaded separately.
    whole = left.warp_length == 16 or (left.load_kind == "across" and left.near < 8) or arithmetic == "tf32x3"
    half_of_row = 1 if whole else f"(i) / {left.warp_length // 32}"
    lines = [
        f"#define IN_HALF(i, half_of) ({half_of_row} == (half_of))",
        f"#define SWIZZLED(row) ((row) / {32 // block.depth} % {block.depth // 4})",
        f"#define EXCHANGED(l) {exchanged}",
    ]
    # Contiguous numbers belong to rows or columns of different fragments.
    for matrix, (inner, outer) in ((left, (8, left.near)), (right, (right.near, 8))):
        order = f"(i) % {inner} * {outer} + (i) / {inner}" if matrix.load_kind == "across" else "i"
        lines.append(f"#define order_{matrix.letter}(i) ({order})")
    if right.load_kind == "across":
        at = f"((q) * {_store_width(right)} + (e))"
        indices = f"{at} % {right.near}", f"{at} / {right.near}", f"2 * r * {right.near} + {at}"
    else:
        indices = "q", "e", "(q) * 8 + 2 * r + (e)"
    # Macros that map element `e` of a stored vector `q` to its fragment, the fragment's side, and the column.
    for name, index in zip(("FRAGMENT", "SIDE_OF_FRAGMENT", "COLUMN"), indices):
        lines.append(f"#define {name}(q, e) ({index})")
    return "\n".join(lines) + "\n"


def multiply_add_function(ending: str, instructions: Instructions) -> str:
    """Return the code of float32's ``multiply_add`` and any function it calls, with `ending` appended to each name."""
    code = functions(f"gemm/tensor_cores_{instructions}.cl")
    called = ["multiply_add"] if instructions == "ptx" else ["product_float32", "multiply_add"]
    words = {"TILE_WORDS": 0, "FRAGMENTS": _FRAGMENTS["float32"], "product_of_words": f"product_float32{ending}"}
    return filled("".join(code[name] for name in called), **words, **{name: name + ending for name in called})

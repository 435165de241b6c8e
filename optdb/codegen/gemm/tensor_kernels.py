"""The kernels that multiply matrices on a GPU's tensor cores, written for the shape of a tile.

A group computes a tile of the result, and each 32 items of it a part of the tile: as fragments that are spread over
their registers, by instructions that multiply 16 by 8 and 8 by 8 numbers. Tiles of both matrices are copied into local
memory several stages ahead, without registers in between (``cp.async``), and fragments are loaded from there by
``ldmatrix``, or word by word where the terms of a sum do not stand side by side. A tile has no gaps between its rows:
pieces of 16 bytes are exchanged within them so that what is loaded together lies in different banks.

Kernels are put together of the functions in ``tensor_cores.cl``: those that copy and load each matrix, see
`_copy_functions` and `_load_functions`, the one that multiplies, and the kernel itself.

References
----------
NVIDIA, "Parallel Thread Execution ISA" (mma.sync, ldmatrix, cp.async).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from optdb.codegen.gemm.launches import product_kernel
from optdb.codegen.kernels import Kernel
from optdb.codegen.source import body, filled, functions
from optdb.runtime.context_options import Instructions

#: How a kernel multiplies: numbers of TF32; those of float32, each divided into two of TF32; those of float16.
Arithmetic = Literal["tf32", "tf32x3", "float16"]

#: Items that execute an instruction of the tensor cores together.
WARP = 32
#: What numbers are multiplied by before the bits below TF32's are cut off. It adds a half of what these can be on
#: average, and less than would change a number of TF32.
ROUNDING = "(1 + 0x1.555556p-12f)"
#: Words of terms that an instruction multiplies.
_STEP = 8
#: Bytes that are copied into local memory at once.
_PIECE = 16
#: Rows of tiles that groups compute side by side.
BAND = 8
#: What functions copy, or find: where the first piece is, whole tiles, and others by pieces or by single numbers.
_COPIES = ("piece", "whole", "wide", "single")
#: Bytes of numbers.
_ITEM = 4
#: The words of kernels that copy into local memory, by their instructions: PTX addresses it by numbers.
MEMORY_WORDS: dict[Instructions, dict[str, str]] = {
    "ptx": {"MEMORY": "uint", "ADDRESS_OF": "(ulong)"},
    "emulated": {"MEMORY": "__local uint *", "ADDRESS_OF": ""},
}
#: Words by which emulated instructions exchange fragments, for each item.
EXCHANGED_WORDS = 6


@dataclass(frozen=True)
class TensorBlock:
    """The tile of a product that a group computes by tensor cores."""

    #: Of the tile of the result.
    rows: int
    cols: int
    #: How many terms of each sum a stage in local memory has, and how many stages there are.
    depth: int
    stages: int
    #: Of the part of the result that each 32 items compute.
    warp_rows: int
    warp_cols: int

    @property
    def name(self) -> str:
        """What the kernels' names begin with."""
        return f"tensor_{self.rows}x{self.cols}x{self.depth}_{self.stages}_{self.warp_rows}x{self.warp_cols}"

    @property
    def items(self) -> int:
        """Work items in a group."""
        return (self.rows // self.warp_rows) * (self.cols // self.warp_cols) * WARP

    @property
    def stage_words(self) -> int:
        """How many numbers a stage has."""
        return (self.rows + self.cols) * self.depth

    @property
    def local_bytes(self) -> int:
        """How much local memory a group takes."""
        return self.stages * self.stage_words * _ITEM

    def unsupported_reason(self) -> str | None:
        """Tell why there can be no such block, None if there can."""
        if any(x < 1 or x & (x - 1) for x in (self.rows, self.cols, self.depth, self.warp_rows, self.warp_cols)):
            return "lengths are powers of two"
        if self.rows % self.warp_rows or self.cols % self.warp_cols:
            return "the parts of the items have to divide the tile"
        if self.warp_rows < 16 or self.warp_cols < 16 or not 16 <= self.depth <= 32 or min(self.rows, self.cols) < 32:
            return "warps take 16 rows and columns, stages 16 or 32 terms, and tiles at least 32 rows and columns"
        if self.stages < 2:
            return "one stage is copied while another one is multiplied"
        if self.items < max(self.rows, self.cols) or min(self.rows, self.cols) * self.depth // 4 % self.items:
            return "each item has to copy as many pieces as the others, and what it copies lie four rows apart"
        return None


class _TileFactor(NamedTuple):
    """A matrix of a product, as a kernel copies and loads it."""

    #: What the words of the kernel for it begin with, and how its functions call it.
    letter: Literal["A", "B"]
    side: Literal["left", "right"]
    #: Rows of the left one or columns of the right one: of the tile, and of a warp's part.
    tile_length: int
    warp_length: int
    #: Whether tiles are copied along the terms of the sums.
    is_along: bool
    dtype: str

    @property
    def load_kind(self) -> str:
        """How fragments are loaded: along the terms, across them, or across them by transposing 16 bits."""
        if self.is_along:
            return "along"
        return "across" if self.dtype == "float32" else "transposed"

    @property
    def near(self) -> int:
        """How many neighbours an item loads where rows, or columns, stand side by side."""
        return self.warp_length // 8


def kernel_name(block: TensorBlock, arithmetic: Arithmetic, along: tuple[bool, bool]) -> str:
    """Return the name of a kernel: by its arithmetic, and whether terms stand side by side in each matrix."""
    return f"{block.name}_{arithmetic}_{''.join('nt'[side] for side in along)}"


def dtype_of(arithmetic: Arithmetic) -> str:
    """Return the dtype of the matrices."""
    return "float16" if arithmetic == "float16" else "float32"


def tensor_kernel(
    block: TensorBlock, arithmetic: Arithmetic, along: tuple[bool, bool], instructions: Instructions
) -> Kernel:
    """Return the kernel that multiplies by tiles of one shape, for matrices in one order.

    Parameters
    ----------
    block : TensorBlock
        The shape.
    arithmetic : {'tf32', 'tf32x3', 'float16'}
        What it multiplies.
    along : (bool, bool)
        For each of both matrices, whether tiles are copied along the terms of the sums.
    instructions : {'ptx', 'emulated'}
        The device's, or functions that do the same slowly.
    """
    code, dtype = functions("gemm/tensor_cores.cl"), dtype_of(arithmetic)
    left = _TileFactor("A", "left", block.rows, block.warp_rows, along[0], dtype)
    right = _TileFactor("B", "right", block.cols, block.warp_cols, along[1], dtype)
    rest = ["rest_of"] if arithmetic == "tf32x3" else []
    parts = {
        **functions(f"gemm/tensor_cores_{instructions}.cl"),
        **_copy_functions(left),
        **_copy_functions(right),
        **_load_functions(left, right),
        **{name: code[name] for name in (*rest, f"multiply_{arithmetic}")},
        "MATMUL": with_tile_found(code["MATMUL"]),
    }
    words = {
        **{"MATMUL": kernel_name(block, arithmetic, along), "copy_number": f"copy_number_{dtype}"},
        **_shape_words(block, dtype, instructions),
        **_arithmetic_words(block, arithmetic),
        **_matrix_words(left, block),
        **_matrix_words(right, block),
        **_store_words(right, arithmetic),
    }
    return product_kernel(_macros(block, arithmetic, left, right) + filled("\n".join(parts.values()), **words), dtype)


def with_tile_found(kernel: str) -> str:
    """Return a kernel's code with the statements that find the tile of a group."""
    statements = body(functions("gemm/tensor_cores.cl")["find_tile"]).strip()
    return kernel.replace("FIND_TILE\n", f"{statements}\n", 1)


def _copy_functions(matrix: _TileFactor) -> dict[str, str]:
    """Return the functions that copy tiles of a matrix, piece by piece or number by number."""
    code, names = functions("gemm/tensor_cores.cl"), _copy_names(matrix)
    return {name: filled(code[template], **names, SIDE=matrix.tile_length) for template, name in names.items()}


def _copy_names(matrix: _TileFactor) -> dict[str, str]:
    """Return the names of these functions by those of their templates."""
    kind = "along" if matrix.is_along else "across"
    return {f"{what}_{kind}_SIDE": f"{what}_{kind}_{matrix.tile_length}" for what in _COPIES}


#: How the numbers of two fragments of the right matrix are loaded, and from where.
_RIGHT_KINDS = {
    "along": {"LOAD_FOUR": "load_matrices", "RIGHT_AT": "at[l / 8] + j * 8 * DEPTH"},
    "transposed": {"LOAD_FOUR": "load_transposed", "RIGHT_AT": "at[j / 2] + l * COLS"},
}


def _load_functions(left: _TileFactor, right: _TileFactor) -> dict[str, str]:
    """Return the functions that load fragments of both matrices."""
    code = dict(functions("gemm/tensor_cores.cl"))
    for kind, words in _RIGHT_KINDS.items():
        name = f"load_right_{kind}"
        code[name] = filled(code["load_right_KIND"], load_right_KIND=name, **words)
    names = [f"load_{matrix.near}" for matrix in (right, left) if matrix.load_kind == "across"]
    for matrix in (left, right):
        names += [f"{matrix.side}_place_{matrix.load_kind}", f"load_{matrix.side}_{matrix.load_kind}"]
    return {name: code[name] for name in names}


def _shape_words(block: TensorBlock, dtype: str, instructions: Instructions) -> dict[str, Any]:
    """Return the words of a tile's shape, and of its stages in local memory."""
    piece, memory = _PIECE // np.dtype(dtype).itemsize, block.stages * block.stage_words
    return {
        **{"ITEMS": block.items, "ROWS": block.rows, "COLS": block.cols, "DEPTH": block.depth, "BAND": BAND},
        **{"WARP_ROWS": block.warp_rows, "WARP_COLS": block.warp_cols},
        **{"PIECE": piece, "TERMS": block.depth * piece // 4},
        **{"STAGES": block.stages, "PENDING": block.stages - 2},
        **{"STAGE_WORDS": block.stage_words, "TILE_WORDS": memory},
        "LOCAL_WORDS": memory + EXCHANGED_WORDS * block.items * (instructions == "emulated"),
        **MEMORY_WORDS[instructions],
    }


def _arithmetic_words(block: TensorBlock, arithmetic: Arithmetic) -> dict[str, Any]:
    """Return the words of how a kernel multiplies; numbers divided into two are added up stage by stage."""
    code, is_divided = functions("gemm/tensor_cores.cl"), arithmetic == "tf32x3"
    lengths = {"WARP_ROWS": block.warp_rows, "WARP_COLS": block.warp_cols}
    statements = {
        name.upper(): filled(body(code[name]), **lengths) if is_divided else ""
        for name in ("begin_stage", "end_stage", "repeat_nan")
    }
    sums = "sums_of_stage" if is_divided else "acc"
    return {"MULTIPLY": f"multiply_{arithmetic}", "ROUNDING": ROUNDING, "SUMS": sums, **statements}


def _matrix_words(matrix: _TileFactor, block: TensorBlock) -> dict[str, Any]:
    """Return the words of the functions that copy and load a matrix."""
    letter, side, kind = matrix.letter, matrix.side, matrix.load_kind
    places = {"along": block.depth // _STEP, "across": max(matrix.near // 4, 1), "transposed": matrix.near // 2}
    return {
        f"{letter}_ALONG": int(matrix.is_along),
        **{f"{letter}_{what.upper()}": name for what, name in zip(_COPIES, _copy_names(matrix).values())},
        **{f"{letter}_PLACE": f"{side}_place_{kind}", f"{letter}_PLACES": places[kind]},
        **{f"LOAD_{letter}": f"load_{side}_{kind}", f"LOAD_NEAR_{letter}": f"load_{matrix.near}"},
        # Numbers that stand side by side are rows, or columns, of different fragments.
        f"{letter}_ORDER": f"{side}_order" if kind == "across" else "",
    }


def _stored_at_once(right: _TileFactor) -> int:
    """Return how many neighbours of a row an item stores at once."""
    return min(right.near, 4) if right.load_kind == "across" else 2


def _store_words(right: _TileFactor, arithmetic: Arithmetic) -> dict[str, Any]:
    """Return the words of vectors of sums that are stored; float16, and sums that are computed again, have none."""
    vector = _stored_at_once(right)
    names = {"VECTOR": vector, "VECTOR_TYPE": f"float{vector}", "VLOAD_VECTOR": f"vload{vector}"}
    return {"STORES_VECTORS": int(arithmetic == "tf32"), **names}


def _macros(block: TensorBlock, arithmetic: Arithmetic, left: _TileFactor, right: _TileFactor) -> str:
    """Return the macros of the order of pieces in local memory, and of rows and columns in fragments.

    Eight pieces of 16 bytes fill the banks once. Pieces of rows that lie in one line of them keep their order, and
    those of the next line have another. Items read one or two pieces next to each other in each of four rows.

    Number `e` of vector `q` that an item stores is in some fragment, on one of its two sides: each fragment has two
    neighbours, or, where columns are in another order, fragments have a neighbour each.
    """
    exchanged = "((l) % 2 * 3 + (l) / 2 % 2 * 4)" if left.dtype == "float32" else "((l) % 8)"
    # Rows are multiplied in two halves where each has fragments of its own, which are loaded apart.
    whole = left.warp_length == 16 or (left.load_kind == "across" and left.near < 8) or arithmetic == "tf32x3"
    half_of_row = 1 if whole else f"(i) / {left.warp_length // 32}"
    lines = [
        f"#define IN_HALF(i, half_of) ({half_of_row} == (half_of))",
        f"#define SWIZZLED(row) ((row) / {32 // block.depth} % {block.depth // 4})",
        f"#define EXCHANGED(l) {exchanged}",
    ]
    for matrix, (inner, outer) in ((left, (8, left.near)), (right, (right.near, 8))):
        if matrix.load_kind == "across":
            lines.append(f"#define {matrix.side}_order(i) ((i) % {inner} * {outer} + (i) / {inner})")
    if right.load_kind == "across":
        at = f"((q) * {_stored_at_once(right)} + (e))"
        lines += [
            f"#define FRAGMENT(q, e) ({at} % {right.near})",
            f"#define SIDE_OF_FRAGMENT(q, e) ({at} / {right.near})",
        ]
        lines.append(f"#define COLUMN(q, e) (2 * r * {right.near} + {at})")
    else:
        lines += ["#define FRAGMENT(q, e) (q)", "#define SIDE_OF_FRAGMENT(q, e) (e)"]
        lines.append("#define COLUMN(q, e) ((q) * 8 + 2 * r + (e))")
    return "\n".join(lines) + "\n"


def multiply_add_function(ending: str, instructions: Instructions) -> str:
    """Return the function ``multiply_add`` for kernels of others, its name and those that it calls with an ending."""
    code = functions(f"gemm/tensor_cores_{instructions}.cl")
    called = ["multiply_add"] if instructions == "ptx" else ["half_of", "add_products", "multiply_add"]
    return filled("".join(code[name] for name in called), TILE_WORDS=0, **{name: name + ending for name in called})

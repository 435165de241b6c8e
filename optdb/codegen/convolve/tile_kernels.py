"""Kernels of convolutions on a GPU, generated for a tile shape from the functions in ``tiles.cl``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from optdb.codegen.convolve.tile_shapes import Tile
from optdb.codegen.gemm.launches import product_kernel
from optdb.codegen.gemm.tensor_kernels import (
    EXCHANGED_WORDS,
    MEMORY_WORDS,
    ROUNDING,
    multiply_add_function,
)
from optdb.codegen.kernels import Kernel
from optdb.codegen.scalars.types import C_TYPES
from optdb.codegen.source import body, functions, work_dtype
from optdb.runtime.context_options import Instructions

#: What a kernel computes: results or gradients for images, or gradients for filters.
Kind = Literal["CORRELATE", "WEIGHTS"]

#: Size of an item's vector loads from local memory, in bytes.
_READ = 16
#: Functions for asynchronous copies to local memory.
_COPIES = ("copy_async16", "copy_async_all", "copy_number_float32", "commit_copies", "await_copies")


def correlate_tile_kernels(dtype: str, tiles: Sequence[Tile], instructions: Instructions) -> list[Kernel]:
    """Return the kernels that `correlate_by_tiles` launches, except the one that packs images.

    `instructions` selects the device's instructions, or functions that emulate them, for tiles that need these.
    """
    code = functions("convolve/tiles.cl")
    kernels = [tile_kernel("CORRELATE", dtype, tile, instructions) for tile in tiles]
    return [*kernels, *(product_kernel(code[name], dtype) for name in ("pack_blocks", "total_of_parts"))]


def weight_tile_kernels(dtype: str, tiles: Sequence[Tile], instructions: Instructions) -> list[Kernel]:
    """Return the kernels that `weights_by_tiles` launches, except the one that packs images."""
    kernels = [tile_kernel("WEIGHTS", dtype, tile, instructions) for tile in tiles]
    return [*kernels, product_kernel(functions("convolve/tiles.cl")["total_of_parts"], dtype)]


def tile_kernel(kind: Kind, dtype: str, tile: Tile, instructions: Instructions) -> Kernel:
    """Return the kernel of one tile; its name consists of the kind and the tile's name."""
    name, work = f"{kind.lower()}_{tile.name}", work_dtype(dtype)
    wide = _READ // np.dtype(work).itemsize
    vector = f"{C_TYPES[work]}{wide}"
    layout = _layout_of_warps(tile, wide, vector) if tile.tensor else _layout_of_items(tile, wide, vector)
    copies = functions(f"gemm/tensor_cores_{instructions}.cl")
    code = "".join([copies[function] for function in _COPIES if tile.stages] + [_statements(kind, tile)])
    words = {
        **{kind: name, "VEC": vector, "WIDE": layout.near, "TX": layout.tx, "TY": layout.ty},
        "SAME": int(work == np.dtype(dtype).name),
        # Avoids bank conflicts: neighbouring items write the terms of a row, and read the rows of a term.
        "TERM_SHIFT": 32 // tile.depth * (tile.tensor and kind == "WEIGHTS"),
        **_shape_words(tile, wide),
        **_instruction_words(name, tile, instructions),
    }
    called = multiply_add_function(f"_{name}", instructions) if tile.tensor else ""
    macros = {
        "READ(to, at)": f"vstore{wide}(*(__local const {vector} *)&at, 0, to)",
        **layout.macros,
        "STORE_VECTOR(to, r, c)": _store_vector(f"{C_TYPES[work]}{layout.near}", layout.near),
    }
    defined = "".join(f"#define {macro} {meaning}\n" for macro, meaning in macros.items())
    undefined = "".join(f"#undef {macro.partition('(')[0]}\n" for macro in macros)
    return product_kernel(called + defined + code + undefined, dtype, **words)


@dataclass(frozen=True)
class _Layout:
    """The positions of an item's sums in a tile, as OpenCL C expressions."""

    #: The item's column and row among the items of the group or warp.
    tx: str
    ty: str
    #: Macro definitions: the row and the column of the item's sum `r`, `c`, and vector `at` of a tile in local memory.
    macros: dict[str, str]
    #: Number of its contiguous columns.
    near: int


def _layout_of_items(tile: Tile, wide: int, vector: str) -> _Layout:
    """Return the layout of items whose contiguous rows and columns are one vector load long.

    The items of a warp of 32 compute a rectangle of the tile if possible, so that they read fewer distinct numbers.
    """
    across, down = tile.cols // tile.item_cols, tile.rows // tile.item_rows
    tx, ty = f"item % {across}", f"item / {across}"
    if across % 8 == 0 and down % 4 == 0:
        tx = f"item / 32 % {across // 8} * 8 + item % 8"
        ty = f"item / 32 / {across // 8} * 4 + item % 32 / 8"
    macros = {
        "ROW(r)": f"(i0 + (r) / {wide} * {wide * down} + ty * {wide} + (r) % {wide})",
        "COLUMN(c)": f"((c) * {across} + tx * {wide})",
        "VECTOR_OF(tile, at)": f"((__local {vector} *)(tile))[at]",
        "WORD_OF_VECTOR(at)": f"((at) * {wide})",
    }
    return _Layout(tx, ty, macros, wide)


def _layout_of_warps(tile: Tile, wide: int, vector: str) -> _Layout:
    """Return the layout of tensor core fragments, of 16 rows and 8 columns, that a warp of 32 items shares."""
    pieces = tile.rows // wide
    macros = {
        "ROW(r)": f"(i0 + {_first_row(tile)} + (r) * 8 + ty)",
        "COLUMN(c)": f"({_first_column(tile)} + (c) / 2 * 8 + tx * 2)",
        "VECTOR_OF(tile, at)": f"(*(__local {vector} *)&(tile)[(at) / {pieces}][(at) % {pieces} * {wide}])",
        "WORD_OF_VECTOR(at)": f"((at) / {pieces} * {tile.rows + tile.padding} + (at) % {pieces} * {wide})",
    }
    return _Layout("item % 4", "item / 4 % 8", macros, 2)


def _first_row(tile: Tile) -> str:
    """Return the expression of a warp's first row in a tile."""
    return f"(item / 32 % {tile.rows // tile.warp_rows} * {tile.warp_rows})"


def _first_column(tile: Tile) -> str:
    return f"(item / 32 / {tile.rows // tile.warp_rows} * {tile.warp_cols})"


def _store_vector(stored: str, near: int) -> str:
    """Return the statement that stores contiguous sums of an item."""
    sums = ", ".join(f"acc[r][(c) + {i}]" for i in range(near))
    return f"*(GLOBAL_MEM {stored} *)(to) = ({stored})({sums})"


def _statements(kind: Kind, tile: Tile) -> str:
    """Return the code of a kernel with its main loop, which loads or copies tiles and multiplies them."""
    code = functions("convolve/tiles.cl")
    parts = {
        "LOOP\n": code[f"{kind}_{'COPIED' if tile.stages else 'LOADED'}"],
        "MULTIPLY\n": code["MULTIPLY_TF32" if tile.tensor else "MULTIPLY"],
    }
    text = code[kind]
    for word, function in parts.items():
        text = text.replace(word, body(function).strip() + "\n")
    return text


def _shape_words(tile: Tile, wide: int) -> dict[str, Any]:
    """Return the placeholders of a tile's shape, and of the numbers of elements or vectors that an item loads."""
    lanes = min(tile.cols, tile.items)
    return {
        **{"LANES": lanes, "X_TERMS": tile.depth * lanes // tile.items},
        **{"ITEMS": tile.items, "ROWS": tile.rows, "COLS": tile.cols, "DEPTH": tile.depth},
        **{"ITEM_ROWS": tile.item_rows, "ITEM_COLS": tile.item_cols},
        **{"FIRST_ROW": _first_row(tile), "FIRST_COLUMN": _first_column(tile)},
        **{"PADDING": tile.padding, "TENSOR_PADDING": tile.padding * tile.tensor},
        **{"SIDES": tile.stages or 2, "PENDING": tile.stages - 2},
        "W_VECS": tile.rows * tile.depth // wide,
        "W_LOADS": -(-tile.rows * tile.depth // wide // tile.items),
        "T_LOADS": tile.rows * tile.depth // tile.items,
        "X_LOADS": tile.cols * tile.depth // tile.items,
    }


def _instruction_words(name: str, tile: Tile, instructions: Instructions) -> dict[str, str]:
    """Return the placeholders of a device's instructions; each kernel of a program gets its own copy of the functions.

    Emulated instructions exchange numbers through local memory.
    """
    exchanges = tile.tensor and instructions == "emulated"
    return {
        "ROUNDING": ROUNDING,
        "EXCHANGE": "its_exchange" if exchanges else "0",
        "SHARED": f"__local uint its_exchange[{EXCHANGED_WORDS * tile.items}];" if exchanges else "",
        **MEMORY_WORDS[instructions],
        **{function: f"{function}_{name}" for function in ("multiply_add", *_COPIES)},
    }

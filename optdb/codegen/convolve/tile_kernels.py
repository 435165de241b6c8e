"""Tiles for convolutions on a GPU: their shapes and kernels, and the number of parts into which sums are split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from optdb.codegen.convolve.packing import ConvolutionCall
from optdb.codegen.gemm.families import Choice, prepared
from optdb.codegen.gemm.launches import product_kernel
from optdb.codegen.gemm.problem import GroupTile, Precision
from optdb.codegen.gemm.tensor_cores import ROUNDING, instructions_of, memory_words, multiply_add_function
from optdb.codegen.kernels import Kernel
from optdb.codegen.operation import Kernels
from optdb.codegen.scalars.types import C_TYPES
from optdb.codegen.source import body, filled, functions, functions_in, work_dtype
from optdb.runtime.context_options import InstructionSet
from optdb.runtime.dispatch import tracing

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Size of an item's vector loads from local memory, in bytes.
_READ = 16
#: Functions for asynchronous copies to local memory.
_COPIES = ("copy_async16", "copy_async_all", "copy_number_float32", "commit_copies", "await_copies")
#: Padding of a tile's rows, in elements; it avoids bank conflicts when columns are written one by one.
_PADDING = 4
#: Padding of a tile's rows for tensor cores, where items read eight elements from each of four rows.
_TENSOR_PADDING = 8
#: How many work items keep a compute unit busy; registers limit the number of items. The first number applies if the
#: pixels of a sum are split into parts, the second if the terms of a sum are split.
_BUSY, _BUSY_BY_TERMS = 256, 192
#: Speed of tiles with few rows, relative to tiles with more rows.
_SPEED = {16: 0.55, 32: 0.85}
#: Minimum number of terms in a part, and maximum number of parts into which the terms of a sum are split.
_TERMS_OF_PART, _MOST_PARTS = 512, 8
#: Maximum total number of elements in all partial sums.
_PARTS = 2**24
#: Number of rows of the fallback tile, which devices with asynchronous copies load through registers.
_ROWS_WITHOUT_COPIES = 64


@dataclass(frozen=True)
class Tile(GroupTile):
    """A tile whose items each compute `item_rows` by `item_cols` sums."""

    item_rows: int
    item_cols: int
    #: Whether to use tensor cores, in TF32: 32 items compute `8 * item_rows` by `4 * item_cols` sums.
    tensor: bool = False
    #: Number of asynchronously copied tiles of each matrix in local memory; if 0, items load two tiles through
    #: registers.
    stages: int = 0

    @property
    def name(self) -> str:
        """The suffix of the names of the kernels that use this tile."""
        kind = "_tf32" * self.tensor + (f"_{self.stages}" if self.stages else "")
        return f"{self.rows}x{self.cols}x{self.depth}_{self.item_rows}x{self.item_cols}{kind}"

    @property
    def items(self) -> int:
        return (self.rows // self.item_rows) * (self.cols // self.item_cols)

    @property
    def padding(self) -> int:
        """Padding of a tile's rows in local memory, in elements."""
        return _TENSOR_PADDING if self.tensor else _PADDING

    def local_bytes(self, dtype: str) -> int:
        """Return the local memory, in bytes, that a group needs for tiles of both matrices."""
        numbers = (self.stages or 2) * self.depth * (self.rows + self.cols + 2 * self.padding)
        return numbers * np.dtype(work_dtype(dtype)).itemsize


#: What a kernel computes: "CORRELATE" is for results and for gradients with respect to images, "WEIGHTS" for gradients
#: with respect to filters.
Kind = Literal["CORRELATE", "WEIGHTS"]

#: The largest tile for float16 and float32, the smaller tiles for these dtypes, and the tiles for float64. Larger tiles
#: come first, because the first of several tiles with equal cost is chosen.
_LARGEST: Mapping[Kind, Tile] = {"CORRELATE": Tile(128, 64, 16, 8, 8), "WEIGHTS": Tile(128, 128, 16, 8, 8)}
_TILES = [Tile(64, 64, 16, 8, 8), Tile(32, 128, 16, 4, 8), Tile(16, 128, 16, 4, 4)]
_TILES_OF_DOUBLES = [Tile(64, 64, 16, 4, 4), Tile(16, 64, 16, 2, 4)]

_TENSOR_TILES = [Tile(32, 128, 16, 4, 8, True), Tile(16, 128, 16, 2, 8, True)]
#: Float32 tiles for tensor cores. Warps compute 64 by 64 sums if the tile is large enough: they then read half as many
#: numbers per product as with 32 by 32 sums. Measured on an NVIDIA H200.
TENSOR_TILES: Mapping[Kind, Sequence[Tile]] = {
    "CORRELATE": [Tile(128, 128, 16, 8, 16, True), Tile(64, 256, 8, 8, 16, True, stages=3), *_TENSOR_TILES],
    "WEIGHTS": [Tile(128, 128, 16, 8, 16, True), Tile(64, 128, 16, 4, 16, True), *_TENSOR_TILES],
}

#: Float32 tiles for devices with asynchronous copies, for the results and the gradients with respect to images.
COPIED_TILES = [
    Tile(64, 64, 16, 8, 8, stages=2),
    Tile(32, 128, 16, 4, 8, stages=3),
    Tile(16, 128, 16, 4, 4, stages=3),
]


def own_tiles(kind: Kind, context: Context, dtype: str, precision: Precision = "highest") -> Sequence[Tile]:
    """Return the tiles whose kernels are compiled with a function.

    If the device has tiles for asynchronous copies (`copied_choices`), only the fallback tile is returned.
    """
    if by_tensor_cores(context, dtype, precision):
        return TENSOR_TILES[kind]
    most = context.profile.local_memory_bytes
    fitting = [
        tile if tile.local_bytes(dtype) <= most else replace(tile, depth=tile.depth // 2)
        for tile in (_TILES_OF_DOUBLES if work_dtype(dtype) == "float64" else [_LARGEST[kind], *_TILES])
    ]
    is_copied = kind == "CORRELATE" and dtype == "float32" and context.profile.has_tensor_cores
    return [tile for tile in fitting if tile.rows == _ROWS_WITHOUT_COPIES] if is_copied else fitting


def by_tensor_cores(context: Context, dtype: str, precision: Precision) -> bool:
    """Return whether to use tensor cores.

    Tiles for tensor cores need up to 48 kB of local memory, which all GPUs with tensor cores have.
    """
    return precision == "default" and dtype == "float32" and context.profile.has_tensor_cores


def cost(tile: Tile, rows: int, cols: int = 1) -> float:
    """Return the relative time for `rows` filters, or for a gradient of `rows` x `cols`, padded to whole tiles."""
    padded = -(-rows // tile.rows) * tile.rows * -(-cols // tile.cols) * (tile.cols if cols > 1 else 1)
    return padded / _SPEED.get(tile.rows, 1)


def parts_of_terms(context: Context, tile: Tile, blocks: int, columns: int, depth: int) -> int:
    """Return into how many parts to split the terms of sums; 1 if there are enough tiles for all compute units."""
    most = min(depth // _TERMS_OF_PART, _MOST_PARTS)
    for parts in range(1, most):
        if blocks * -(-columns // tile.cols) * tile.items * parts >= context.profile.compute_units * _BUSY_BY_TERMS:
            return parts
    return max(most, 1)


def parts_of_pixels(context: Context, tile: Tile, tiles: int, sums: int) -> int:
    """Return into how many parts to split the pixels of sums so that work groups fill all compute units evenly."""
    slots = context.profile.compute_units * max(_BUSY // tile.items, 1)
    most = max(min(-(-2 * slots // tiles), _PARTS // sums), 1)

    def filled(parts: int) -> float:
        return tiles * parts / (-(-tiles * parts // slots) * slots)

    best = max(map(filled, range(1, most + 1)))
    return next(parts for parts in range(1, most + 1) if filled(parts) >= 0.95 * best)


def kernels_by_tiles(kind: Kind, dtype: str, tiles: Sequence[Tile], instructions: InstructionSet) -> list[Kernel]:
    """Return the kernels that tiled products launch, except the kernel that packs images."""
    code, others = functions("convolve/tiles.cl"), ["pack_blocks"] * (kind == "CORRELATE") + ["total_of_parts"]
    kernels = [tile_kernel(kind, dtype, tile, instructions) for tile in tiles]
    return [*kernels, *(product_kernel(code[name], dtype) for name in others)]


def tile_kernel(kind: Kind, dtype: str, tile: Tile, instructions: InstructionSet) -> Kernel:
    """Return the kernel for one tile shape; the kernel's name consists of the kind and the tile's name."""
    code, name, work = functions("convolve/tiles.cl"), f"{kind.lower()}_{tile.name}", work_dtype(dtype)
    wide, lanes, across = _READ // np.dtype(work).itemsize, min(tile.cols, tile.items), tile.cols // tile.item_cols
    vector, near = f"{C_TYPES[work]}{wide}", 2 if tile.tensor else wide
    tx, ty = ("item % 4", "item / 4 % 8") if tile.tensor else (f"item % {across}", f"item / {across}")
    if not tile.tensor and across % 8 == 0 and tile.rows // tile.item_rows % 4 == 0:
        # The items of a warp compute a rectangle, so that they read fewer distinct numbers.
        tx, ty = f"item / 32 % {across // 8} * 8 + item % 8", f"item / 32 / {across // 8} * 4 + item % 32 / 8"
    exchanged = tile.tensor * instructions.exchanged_words * tile.items
    text = filled(filled(code[kind], TILE_LOOP=body(code["LOADED"])), MULTIPLY=body(code["MULTIPLY"]))
    copies = functions_in(instructions.warps)
    called = multiply_add_function(f"_{name}", instructions) if tile.tensor else ""
    called += body(code["positions"]).lstrip() + "".join(copies[function] for function in _COPIES if tile.stages)
    words: dict[str, Any] = {
        **{kind: name, "VEC": vector, "WIDE": near, "TX": tx, "TY": ty, "SAME": int(work == np.dtype(dtype).name)},
        **{"READ_VECTOR": f"vstore{wide}", "STORED": f"{C_TYPES[work]}{near}"},
        "STORED_SUMS": ", ".join(f"acc[r][c + {i}]" for i in range(near)),
        # The shift avoids bank conflicts: neighbouring items write neighbouring terms, but read neighbouring rows.
        "TERM_SHIFT": 32 // tile.depth * (tile.tensor and kind == "WEIGHTS"),
        **tile.words(),
        **{"LANES": lanes, "X_TERMS": tile.depth * lanes // tile.items},
        **{"PADDING": tile.padding, "TENSOR_PADDING": tile.padding * tile.tensor},
        **{"IS_TENSOR": int(tile.tensor), "IS_COPIED": int(tile.stages > 0)},
        **{"SIDES": tile.stages or 2, "PENDING": tile.stages - 2},
        "W_VECS": tile.rows * tile.depth // wide,
        "W_LOADS": -(-tile.rows * tile.depth // wide // tile.items),
        "T_LOADS": tile.rows * tile.depth // tile.items,
        "X_LOADS": tile.cols * tile.depth // tile.items,
        "ROUNDING": ROUNDING,
        "EXCHANGE": "its_exchange" if exchanged else "0",
        "SHARED": f"__local uint its_exchange[{exchanged}];" if exchanged else "",
        **memory_words(instructions),
        # Each kernel in a program gets its own copy of the functions.
        **{function: f"{function}_{name}" for function in ("multiply_add", *_COPIES)},
    }
    return product_kernel(called + text, dtype, **words)


class TileRequest(NamedTuple):
    """The parameters that determine the choice of a tile for results or for gradients with respect to images."""

    dtype: str
    precision: Precision
    #: Number of filters in a group.
    rows: int


def copied_choices(context: Context, request: TileRequest) -> list[Choice[Tile]]:
    """Return the choices for tiles with asynchronous copies that fit the device; each tile has a kernel of its own."""
    dtype, profile = request.dtype, context.profile
    is_copied = dtype == "float32" and profile.has_tensor_cores
    if not is_copied or by_tensor_cores(context, dtype, request.precision):
        return []

    def kernels(tile: Tile) -> list[Kernel]:
        return [tile_kernel("CORRELATE", dtype, tile, instructions_of(context))]

    return [
        Choice(f"a convolution by {tile.name}", tile, cost(tile, request.rows), partial(kernels, tile))
        for tile in COPIED_TILES
        if tile.items <= profile.max_local_size and tile.local_bytes("float32") <= profile.local_memory_bytes
    ]


def own_choices(context: Context, request: TileRequest) -> list[Choice[Tile]]:
    """Return the choices for the tiles whose kernels were compiled with the function."""
    tiles = own_tiles("CORRELATE", context, request.dtype, request.precision)
    return [Choice(tile.name, tile, cost(tile, request.rows)) for tile in tiles]


def chosen(call: ConvolutionCall, dtype: str, rows: int) -> tuple[Kernels, Tile]:
    """Choose a tile for results or gradients of images.

    Return the kernels of the call and of the tile, and the tile.
    """
    # A trace must not use other kernels: an exported file contains only kernels that are compiled with a function.
    families = (own_choices,) if tracing() is not None else (copied_choices, own_choices)
    choice = prepared(families, call.context, TileRequest(dtype, call.precision, rows))
    return {**call.kernels, **(choice.kernels or {})}, choice.plan

"""Tiles of convolutions on a GPU: their shapes, and the choice of a tile and a number of parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.gemm.problem import Precision
from optdb.codegen.source import work_dtype

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Padding of a tile's rows, in elements, which avoids bank conflicts where columns are written one by one.
_PADDING = 4
#: The same for tensor cores, where items read eight numbers of each of four rows.
_TENSOR_PADDING = 8
#: Work items that keep a compute unit busy, given these kernels' registers, if pixels or terms are split into parts.
_BUSY, _BUSY_BY_TERMS = 256, 192
#: Relative speed of tiles with few rows.
_SPEED = {16: 0.55, 32: 0.85}
#: The fewest terms of a part, and the most parts that terms are split into.
_TERMS_OF_PART, _MOST_PARTS = 512, 8
#: The most elements of all partial sums.
_PARTS = 2**24
#: Rows of the fallback tile, without asynchronous copies, on a device that has them.
_ROWS_WITHOUT_COPIES = 64


@dataclass(frozen=True)
class Tile:
    """The tile that a work group computes, and the part of it that each item computes."""

    rows: int
    cols: int
    #: Number of terms of each sum in local memory at a time.
    depth: int
    item_rows: int
    item_cols: int
    #: Whether to use tensor cores, in TF32. Then 32 items compute `warp_rows` by `warp_cols` sums.
    tensor: bool = False
    #: Number of tiles of each matrix in local memory, copied asynchronously; if 0, items load two through registers.
    stages: int = 0

    @property
    def warp_rows(self) -> int:
        """Rows that 32 items compute with tensor cores: each item has two of sixteen."""
        return 8 * self.item_rows

    @property
    def warp_cols(self) -> int:
        """Columns that 32 items compute with tensor cores: each item has two of eight."""
        return 4 * self.item_cols

    @property
    def name(self) -> str:
        """The suffix of the names of kernels with this tile."""
        kind = "_tf32" * self.tensor + (f"_{self.stages}" if self.stages else "")
        return f"{self.rows}x{self.cols}x{self.depth}_{self.item_rows}x{self.item_cols}{kind}"

    @property
    def items(self) -> int:
        """The work-group size."""
        return (self.rows // self.item_rows) * (self.cols // self.item_cols)

    @property
    def padding(self) -> int:
        """Padding of a tile's rows in local memory, in elements."""
        return _TENSOR_PADDING if self.tensor else _PADDING

    def local_bytes(self, dtype: str) -> int:
        """Return the local memory, in bytes, that a group needs for tiles of both matrices."""
        numbers = (self.stages or 2) * self.depth * (self.rows + self.cols + 2 * self.padding)
        return numbers * np.dtype(work_dtype(dtype)).itemsize


#: Tiles of results and of gradients for images, and tiles of gradients for filters, by item size in bytes.
_TILES = {
    4: [Tile(128, 64, 16, 8, 8), Tile(64, 64, 16, 8, 8), Tile(32, 128, 16, 4, 8), Tile(16, 128, 16, 4, 4)],
    8: [Tile(64, 64, 16, 4, 4), Tile(16, 64, 16, 2, 4)],
}
_WEIGHT_TILES = {
    4: [Tile(128, 128, 16, 8, 8), Tile(64, 64, 16, 8, 8), Tile(32, 128, 16, 4, 8), Tile(16, 128, 16, 4, 4)],
    8: [Tile(64, 64, 16, 4, 4), Tile(16, 64, 16, 2, 4)],
}

#: Tiles of float32 for tensor cores. Warps compute 64 by 64 sums where the tile is large enough: they read half as many
#: numbers per product as warps of 32 by 32 sums. Measured on an NVIDIA H200.
TENSOR_TILES = [
    *(Tile(128, 128, 16, 8, 16, True), Tile(64, 256, 8, 8, 16, True, stages=3)),
    *(Tile(32, 128, 16, 4, 8, True), Tile(16, 128, 16, 2, 8, True)),
]
TENSOR_WEIGHT_TILES = [
    *(Tile(128, 128, 16, 8, 16, True), Tile(64, 128, 16, 4, 16, True)),
    *(Tile(32, 128, 16, 4, 8, True), Tile(16, 128, 16, 2, 8, True)),
]

#: Tiles of float32 on devices with asynchronous copies; tiles without stages are loaded through registers.
COPIED_TILES = {
    "CORRELATE": [
        Tile(64, 64, 16, 8, 8, stages=2),
        Tile(32, 128, 16, 4, 8, stages=3),
        Tile(16, 128, 16, 4, 4, stages=3),
    ],
    "WEIGHTS": [
        *(Tile(128, 128, 8, 16, 8), Tile(64, 64, 16, 8, 8, stages=2)),
        *(Tile(32, 128, 16, 4, 8, stages=3), Tile(16, 128, 16, 4, 4)),
    ],
}


def correlate_tiles(context: Context, dtype: str, precision: Precision = "highest") -> list[Tile]:
    """Return the tiles of results and of gradients for images."""
    if by_tensor_cores(context, dtype, precision):
        return TENSOR_TILES
    return _fitting(context, dtype, _TILES)


def weight_tiles(context: Context, dtype: str, precision: Precision = "highest") -> list[Tile]:
    """Return the tiles of gradients for filters."""
    if by_tensor_cores(context, dtype, precision):
        return TENSOR_WEIGHT_TILES
    return _fitting(context, dtype, _WEIGHT_TILES)


def by_tensor_cores(context: Context, dtype: str, precision: Precision) -> bool:
    """Tell whether to use tensor cores. Their tiles need at most 48 kB of local memory, which such GPUs have."""
    return precision == "default" and dtype == "float32" and context.profile.has_tensor_cores


def _fitting(context: Context, dtype: str, tiles: Mapping[int, Sequence[Tile]]) -> list[Tile]:
    """Return the tiles for a dtype, with half the terms if local memory is too small.

    Where tiles of float32 are copied asynchronously, their kernels are compiled at first use, and one tile is enough as
    a fallback.
    """
    most = context.profile.local_memory_bytes
    fitting = [
        tile if tile.local_bytes(dtype) <= most else replace(tile, depth=tile.depth // 2)
        for tile in tiles[np.dtype(work_dtype(dtype)).itemsize]
    ]
    copied = dtype == "float32" and context.profile.has_tensor_cores
    return [tile for tile in fitting if tile.rows == _ROWS_WITHOUT_COPIES] if copied else fitting


def choose(tiles: Sequence[Tile], rows: int, cols: int = 1) -> Tile:
    """Return the fastest tile for `rows` filters, or for features by terms: large, but with little padding."""

    def cost(tile: Tile) -> tuple[float, int]:
        padded = -(-rows // tile.rows) * tile.rows * -(-cols // tile.cols) * (tile.cols if cols > 1 else 1)
        return padded / _SPEED.get(tile.rows, 1), -tile.rows

    return min(tiles, key=cost)


def parts_of_terms(context: Context, tile: Tile, blocks: int, columns: int, depth: int) -> int:
    """Return the number of parts to split the terms of sums into, if tiles are too few to keep all units busy."""
    most = min(depth // _TERMS_OF_PART, _MOST_PARTS)
    for parts in range(1, most):
        if blocks * -(-columns // tile.cols) * tile.items * parts >= context.profile.compute_units * _BUSY_BY_TERMS:
            return parts
    return max(most, 1)


def parts_of_pixels(context: Context, tile: Tile, tiles: int, sums: int) -> int:
    """Return the number of parts to split pixels into, so that groups fill all compute units evenly."""
    slots = context.profile.compute_units * max(_BUSY // tile.items, 1)
    most = max(min(-(-2 * slots // tiles), _PARTS // sums), 1)

    def filled(parts: int) -> float:
        return tiles * parts / (-(-tiles * parts // slots) * slots)

    best = max(map(filled, range(1, most + 1)))
    return next(parts for parts in range(1, most + 1) if filled(parts) >= 0.95 * best)

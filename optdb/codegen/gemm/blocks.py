"""Tuned and default block shapes: the part of a product that a work item or work group computes at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.gemm import tuning_table
from optdb.codegen.gemm.problem import GroupTile
from optdb.codegen.source import work_dtype
from optdb.runtime import clblast

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Minimum speedup at which a block replaces the default, or CLBlast replaces the best block.
GAIN = 1.05
#: CLBlast's name in the tuning table.
LIBRARY = "CLBlast"
#: Padding of a tile's rows in local memory, in elements; it avoids bank conflicts along columns.
PADDING = 4


@dataclass(frozen=True)
class ItemBlock:
    """The block of a product that a CPU work item keeps in registers: up to 32 rows of vectors."""

    #: Size of the result block.
    rows: int
    cols: int
    #: Width of the vectors into which columns are divided.
    width: int

    @property
    def name(self) -> str:
        """The kernel's name."""
        return f"matmul_{self.rows}x{self.cols}"


@dataclass(frozen=True)
class GroupBlock(GroupTile):
    """A tile that items load through registers. Lengths are powers of two, and `depth` divides the number of items."""

    #: Size of the part of the result that each item keeps in registers.
    item_rows: int
    item_cols: int

    @property
    def name(self) -> str:
        """The kernel's name."""
        return f"matmul_{self.rows}x{self.cols}x{self.depth}_{self.item_rows}x{self.item_cols}"

    @property
    def items(self) -> int:
        return (self.rows // self.item_rows) * (self.cols // self.item_cols)

    def local_bytes(self, dtype: str) -> int:
        """Return the local memory, in bytes, that a group needs for two tiles of each matrix."""
        return 2 * self.depth * (self.rows + self.cols + 2 * PADDING) * np.dtype(work_dtype(dtype)).itemsize


#: Minimum number of elements in a large tile, which occupies half of a compute unit for about ten microseconds.
_MANY = 128 * 64
_NAME_OF_TILES = re.compile(r"matmul_(\d+)x(\d+)x\d+_")


def has_large_tiles(name: str) -> bool:
    """Return whether the kernel of this name multiplies matrices with large tiles on a GPU."""
    sides = _NAME_OF_TILES.match(name)
    return sides is not None and int(sides[1]) * int(sides[2]) >= _MANY


Block = ItemBlock | GroupBlock

# Measured on an NVIDIA H100; "square", "flat" and "narrow" on an H200.
_GPU_DEFAULTS = {
    "square": GroupBlock(128, 128, 16, 8, 8),
    "small": GroupBlock(64, 64, 16, 8, 4),
    "tiny": GroupBlock(32, 32, 16, 2, 2),
    "flat": GroupBlock(16, 128, 16, 2, 4),
    "narrow": GroupBlock(128, 16, 16, 4, 2),
}
#: Defaults for float64, in which each sum takes two registers.
_GPU_DEFAULTS_OF_DOUBLES = {**_GPU_DEFAULTS, "square": GroupBlock(128, 64, 8, 8, 8)}
_GPU_CANDIDATES = [
    GroupBlock(128, 128, 8, 16, 8),
    GroupBlock(128, 128, 16, 8, 8),
    GroupBlock(128, 64, 8, 8, 8),
    *(GroupBlock(64, 128, depth, 8, 8) for depth in (8, 16)),
    *(GroupBlock(128, 64, depth, 8, 4) for depth in (8, 16)),
    *(GroupBlock(64, 64, depth, 8, 4) for depth in (8, 16)),
    *(GroupBlock(64, 64, depth, 4, 4) for depth in (8, 16, 32)),
    *(GroupBlock(64, 32, depth, 4, 2) for depth in (16, 32)),
    *(GroupBlock(32, 32, depth, 2, 2) for depth in (16, 32)),
    *(GroupBlock(32, 16, depth, 2, 2) for depth in (16, 32)),
    *(GroupBlock(16, 32, depth, 2, 2) for depth in (16, 32)),
    GroupBlock(128, 16, 16, 4, 2),
    GroupBlock(16, 128, 16, 2, 4),
    GroupBlock(64, 16, 16, 2, 2),
    GroupBlock(16, 64, 16, 2, 2),
]
#: The block for devices on which no candidate fits.
_LEAST = GroupBlock(8, 8, 8, 1, 1)


def defaults(context: Context, dtype: str) -> dict[str, Block]:
    """Return the block shape for each class of products on an untuned device."""
    if not context.profile.runs_items_serially:
        preferred = _GPU_DEFAULTS_OF_DOUBLES if work_dtype(dtype) == "float64" else _GPU_DEFAULTS
        return {name: _fitting(context, dtype, block) for name, block in preferred.items()}
    width = vector_width(context, dtype)
    # Accumulators take most of the vector registers. A CPU has 32 registers of 64 bytes, or 16 smaller ones.
    wide = ItemBlock(8, 2 * width, width) if _register_bytes(context) >= 64 else ItemBlock(6, 2 * width, width)
    narrow = ItemBlock(12, width, width) if wide.rows == 8 else ItemBlock(8, width, width)
    return {"square": wide, "small": wide, "tiny": wide, "flat": wide, "narrow": narrow}


def candidates(context: Context, dtype: str) -> list[Block]:
    """Return the block shapes that tuning tries."""
    if not context.profile.runs_items_serially:
        return [block for block in _GPU_CANDIDATES if _fits(context, dtype, block)]
    width = vector_width(context, dtype)
    shapes = [(8, 2), (6, 2), (12, 2), (6, 4), (8, 3), (4, 3), (12, 1), (8, 1), (14, 1)]
    return [ItemBlock(rows, vectors * width, width) for rows, vectors in shapes]


def vector_width(context: Context, dtype: str) -> int:
    """Return how many numbers a CPU vector register holds."""
    return min(max(_register_bytes(context) // np.dtype(work_dtype(dtype)).itemsize, 2), 16)


def _register_bytes(context: Context) -> int:
    return max(context.profile.float_vector_width * 4, 16)


def _fits(context: Context, dtype: str, block: GroupBlock) -> bool:
    profile = context.profile
    return block.items <= profile.max_local_size and block.local_bytes(dtype) <= profile.local_memory_bytes


def _fitting(context: Context, dtype: str, block: GroupBlock) -> GroupBlock:
    """Return the block if it fits the device, or else the most similar block that does."""

    def difference(other: GroupBlock) -> int:
        return sum(abs(x.bit_length() - y.bit_length()) for x, y in zip(astuple(block), astuple(other)))

    fitting = [other for other in (block, *_GPU_CANDIDATES, _LEAST) if _fits(context, dtype, other)]
    return min(fitting, key=difference, default=_LEAST)


@dataclass(frozen=True)
class TunedBlocks:
    """A context's block shapes for products of one dtype, and the classes of products that use CLBlast."""

    #: The block shape for each class of products.
    blocks: Mapping[str, Block]
    #: The classes of products that use CLBlast, because it was faster in tuning.
    library: frozenset[str] = frozenset()


def chosen(context: Context, dtype: str) -> Mapping[str, Block]:
    """Return the tuned or default block shape for each class of products of a dtype."""
    return tuned(context, dtype).blocks


def is_default(context: Context, dtype: str, name: str) -> bool:
    """Return whether a class of products uses the same block shape as on an untuned device."""
    return chosen(context, dtype)[name] == defaults(context, dtype)[name]


def choose(context: Context, dtype: str, choice: TunedBlocks | None) -> None:
    """Set the block shapes and the classes that use CLBlast; None restores the tuned or default choice.

    Functions that are already compiled cannot use new block shapes, so `choose` is only for tuning and tests.
    """
    choices = context.kept.setdefault(__name__, {})
    choices.pop((context.profile.device_kind, dtype), None)
    if choice is not None:
        choices[context.profile.device_kind, dtype] = choice


def tuned(context: Context, dtype: str) -> TunedBlocks:
    """Return a context's block shapes for products of one dtype, and the classes of products that use CLBlast."""
    # The cache lets a function's launches match its kernels even if tuning runs after the kernels are compiled.
    choices: dict[tuple[str, str], TunedBlocks] = context.kept.setdefault(__name__, {})
    key = context.profile.device_kind, dtype
    if key not in choices:
        choices.setdefault(key, _found(context, dtype))  # if two threads get here, the first one wins
    return choices[key]


def _found(context: Context, dtype: str) -> TunedBlocks:
    """Return the fastest choices in the tuning table, and defaults for classes that were not measured."""
    blocks, library = defaults(context, dtype), set()
    known = {block.name: block for block in (*candidates(context, dtype), *blocks.values())}
    for name, default in blocks.items():
        found = tuning_table.measured(context, table_class(dtype, name))
        seconds = {known[choice]: times[0] for choice, times in found.items() if choice in known}
        blocks[name] = best = fastest(seconds, default)
        if LIBRARY in found and best in seconds and GAIN * found[LIBRARY][0] < seconds[best]:
            library.add(name)
    return TunedBlocks(blocks, frozenset(library if library and clblast.find() is not None else ()))


def table_class(dtype: str, name: str) -> str:
    """Return the tuning table's name for a class of products of a dtype."""
    return f"{dtype} {name}"


def fastest(seconds: Mapping[Block, float], default: Block) -> Block:
    """Return the default block if no block is clearly faster, else the fastest block."""
    best = min(seconds, key=seconds.__getitem__, default=default)
    return default if default in seconds and seconds[best] * GAIN > seconds[default] else best

"""Block shapes: how much of a product one work item, or one group of them, computes at a time.

`chosen` is what kernels and planners ask: what tuning found for the device, or else `defaults`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb import __version__
from optdb.codegen.gemm.problem import CLASSES
from optdb.codegen.source import work_dtype
from optdb.runtime import clblast, tuning

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Under which block shapes are kept on disk.
KIND = "matmul"


@dataclass(frozen=True)
class ItemBlock:
    """What one work item of a processor keeps in registers."""

    #: Of the result.
    rows: int
    cols: int
    #: Of the vectors that the columns are divided into.
    width: int

    @property
    def name(self) -> str:
        """The kernel's name."""
        return f"matmul_{self.rows}x{self.cols}"

    def unsupported_reason(self) -> str | None:
        """Tell why there can be no such block, None if there can."""
        if self.width not in (2, 4, 8, 16) or self.cols % self.width or not 2 <= self.rows <= 32:
            return "columns come in vectors of 2, 4, 8 or 16, and rows are 2 to 32"
        return None


@dataclass(frozen=True)
class GroupBlock:
    """What a work group of a GPU computes, from tiles in local memory."""

    #: Of the tile of the result.
    rows: int
    cols: int
    #: How many terms of each sum are in local memory at a time.
    depth: int
    #: Of the part of the result that each item keeps in registers.
    item_rows: int
    item_cols: int

    @property
    def name(self) -> str:
        """The kernel's name."""
        return f"matmul_{self.rows}x{self.cols}x{self.depth}_{self.item_rows}x{self.item_cols}"

    @property
    def items(self) -> int:
        """Work items in a group."""
        return (self.rows // self.item_rows) * (self.cols // self.item_cols)

    def local_bytes(self, dtype: str) -> int:
        """Return how much local memory a group takes: two tiles of each matrix, the next one being loaded."""
        return 2 * self.depth * (self.rows + self.cols + 2 * PADDING) * np.dtype(work_dtype(dtype)).itemsize

    def unsupported_reason(self) -> str | None:
        """Tell why there can be no such block, None if there can."""
        lengths = astuple(self)
        if min(lengths) < 1:
            return "lengths are at least 1"
        if self.rows % self.item_rows or self.cols % self.item_cols:
            return "the parts of items have to divide the tile"
        if any(x & (x - 1) for x in lengths):
            return "lengths are powers of two"
        if self.items % max(self.rows, self.cols, self.depth):
            return "the number of items has to be a multiple of the tile's lengths, which they load together"
        if min(self.rows, self.cols) * self.depth % self.items:
            return "each item has to load as much of a tile as the others"
        return None


#: Elements between the rows of a tile in local memory, so that a column of it lies in different banks.
PADDING = 4

Block = ItemBlock | GroupBlock

# Measured on an NVIDIA H200.
_GPU_DEFAULTS = {
    "square": GroupBlock(128, 128, 16, 8, 8),
    "small": GroupBlock(64, 64, 16, 4, 4),
    "tiny": GroupBlock(16, 32, 32, 2, 2),
    "flat": GroupBlock(16, 128, 16, 2, 4),
    "narrow": GroupBlock(128, 16, 16, 4, 2),
}
_GPU_CANDIDATES = [
    *(GroupBlock(128, 128, depth, 8, 8) for depth in (8, 16)),
    *(GroupBlock(128, 64, depth, 8, 4) for depth in (8, 16)),
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


#: For the least of devices.
_LEAST = GroupBlock(8, 8, 8, 1, 1)


def defaults(context: Context, dtype: str) -> dict[str, Block]:
    """Return the block shape for each class of products on a device that was not tuned."""
    if not context.profile.runs_items_serially:
        return {name: _fitting(context, dtype, block) for name, block in _GPU_DEFAULTS.items()}
    width = vector_width(context, dtype)
    # Of 32 registers where vectors are of 64 bytes, and of 16 elsewhere, most hold sums.
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
    """Return how many numbers a register of a processor holds."""
    return min(max(_register_bytes(context) // np.dtype(work_dtype(dtype)).itemsize, 2), 16)


def _register_bytes(context: Context) -> int:
    return max(context.profile.float_vector_width * 4, 16)


def _fits(context: Context, dtype: str, block: GroupBlock) -> bool:
    profile = context.profile
    return block.items <= profile.max_local_size and block.local_bytes(dtype) <= profile.local_memory_bytes


def _fitting(context: Context, dtype: str, block: GroupBlock) -> GroupBlock:
    """Return the block, or the one most like it that a small device can take."""
    fitting = [other for other in (block, *_GPU_CANDIDATES, _LEAST) if _fits(context, dtype, other)]
    return min(fitting, key=lambda other: _difference(block, other)) if fitting else _LEAST


def _difference(one: GroupBlock, other: GroupBlock) -> int:
    """Return how often a length has to be doubled or halved to make one block of another."""
    return sum(abs(x.bit_length() - y.bit_length()) for x, y in zip(astuple(one), astuple(other)))


@dataclass(frozen=True)
class Choice:
    """What a context uses for products of a dtype."""

    #: The block shape for each class.
    blocks: Mapping[str, Block]
    #: The classes that CLBlast is asked for.
    library: frozenset[str] = frozenset()


def chosen(context: Context, dtype: str) -> Mapping[str, Block]:
    """Return the block shape for each class of products of matrices of a dtype: as tuned, or the default."""
    return _choice(context, dtype).blocks


def by_library(context: Context, dtype: str) -> frozenset[str]:
    """Return the classes of products for which tuning found CLBlast, which is installed, to be faster."""
    return _choice(context, dtype).library


def choose(context: Context, dtype: str, choice: Choice | None) -> None:
    """Have a context use this choice from now on, or with None what was tuned or is the default.

    Functions compiled before cannot use other block shapes: this is for tuning and tests.
    """
    known = context.kept.setdefault(__name__, {})
    known.pop((context.profile.device_kind, dtype), None)
    if choice is not None:
        known[context.profile.device_kind, dtype] = choice


def key_of(context: Context, dtype: str) -> dict[str, Any]:
    """Return under what the choice for a dtype is kept on disk."""
    return tuning.key_of(context.device, f"{KIND} {context.profile.device_kind}", dtype, __version__)


def save(context: Context, dtype: str, choice: Choice) -> None:
    """Keep a choice on disk; raise OSError if that does not work."""
    found = {"blocks": {name: asdict(block) for name, block in choice.blocks.items()}}
    tuning.save(key_of(context, dtype), {**found, "library": sorted(choice.library)})


def _choice(context: Context, dtype: str) -> Choice:
    # Remembered, that the kernels of a function and what launches them agree whatever is tuned meanwhile.
    known, key = context.kept.setdefault(__name__, {}), (context.profile.device_kind, dtype)
    if key not in known:
        known[key] = _found(context, dtype)
    return known[key]


def _found(context: Context, dtype: str) -> Choice:
    """Return what is on disk, as far as the device can use it, and otherwise the default."""
    blocks = defaults(context, dtype)
    found = tuning.load(key_of(context, dtype))
    if found is None:
        return Choice(blocks)
    kept, library = found.get("blocks"), found.get("library")
    for name in CLASSES if isinstance(kept, dict) else ():
        block = _from_dict(kept.get(name), context, dtype)
        blocks[name] = blocks[name] if block is None else block
    wanted = isinstance(library, list) and library and clblast.find() is not None
    return Choice(blocks, frozenset(name for name in CLASSES if name in library) if wanted else frozenset())


def _from_dict(value: Any, context: Context, dtype: str) -> Block | None:
    """Return a block shape that was kept on disk; None if the device cannot use what is there."""
    kind = ItemBlock if context.profile.runs_items_serially else GroupBlock
    try:
        block = kind(**{name: int(number) for name, number in value.items()})
    except (AttributeError, TypeError, ValueError):
        return None
    if block.unsupported_reason() is not None:
        return None
    return block if isinstance(block, ItemBlock) or _fits(context, dtype, block) else None

"""Convolutions and their gradients on a GPU, as products of matrices that are nowhere in memory.

A work group computes a tile of the result. It loads tiles of both matrices into local memory, the next ones while it
multiplies those before, and each item keeps its part of the sums in registers, as for `optdb.codegen.gemm.gpu`. The
matrix of images is read where they lie: a table has for each row the offset of a channel and a tap, and for each
column where an output begins to read, and the taps that meet the image there, a bit each. So there are neither
divisions nor comparisons with borders in the loop ("implicit GEMM": Chetlur et al., "cuDNN: efficient primitives for
deep learning", 2014). Images are laid out, with zeros around them, if they have gaps, if they are of float16, or if
filters have more taps than bits.

Where a device can, tiles of float32 are copied into local memory in the background, some steps ahead of those that are
multiplied: copies need no registers, and wait for no item. Gradients for filters profit less: their terms lie side by
side in images and not in tiles, so that each number is a copy of its own.

Gradients for filters are sums over all pixels of all images. These are divided into parts where a result has too few
tiles to give all units work, and another kernel adds up the parts, in their order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from optdb.codegen.convolve.packing import Kernels, images_at_once, laid_out, some_of, tables_of
from optdb.codegen.convolve.plan import ConvolutionPlan, Reading, reading_of
from optdb.codegen.gemm.tensor_cores import ROUNDING, Instructions, Precision, multiply_add_function
from optdb.codegen.kernels import BuildError, Kernel, compile_kernels
from optdb.codegen.kernels.launching import LaunchCache
from optdb.codegen.layout import is_contiguous, size_of
from optdb.codegen.scalars.types import C_TYPES
from optdb.codegen.scratch import scratch, tables
from optdb.codegen.source import body, functions, typed, work_dtype
from optdb.runtime.arrays import Array
from optdb.runtime.commands import tracing
from optdb.runtime.sizes import largest, specialize

if TYPE_CHECKING:
    from optdb.runtime.context import Context

_logger = logging.getLogger(__name__)

#: Bytes that an item reads from local memory at once.
_READ = 16
#: Elements between the rows of a tile whose columns are written one by one, so that these lie in different banks.
_PADDING = 4
#: The same where items read fragments for tensor cores: eight numbers of each of four rows.
_TENSOR_PADDING = 8
#: The most elements that indexes of 32 bits reach, with some room for tiles that are not full.
_REACH = 2**31 - 2**16
#: The most terms of a tile.
_MOST_TERMS = 32
#: Items that keep a compute unit busy, with the registers that these kernels take, for parts of pixels and of terms.
_BUSY, _BUSY_BY_TERMS = 256, 192
#: How fast tiles with few rows are, beside those with more.
_SPEED = {16: 0.55, 32: 0.85}
#: The words of kernels with emulated instructions.
_EMULATED_MEMORY = {"MEMORY": "__local uint *", "ADDRESS_OF": ""}
#: The functions that copy into local memory in the background.
_COPIES = ("copy_async16", "copy_async_all", "copy_number_float32", "commit_copies", "await_copies")
#: Pixels, and terms, of a part of sums, at least, and the most parts that terms are divided in.
_PART, _TERMS_OF_PART, _MOST_PARTS = 256, 512, 8
#: Rows of the tile that a device with copies has besides.
_ROWS_WITHOUT_COPIES = 64
#: The instructions of tiles that are copied in the background.
_INSTRUCTIONS: Instructions = "ptx"
#: The most kernels in the cache of a context.
_KEPT = 64
#: The most features and channels of a group that are no work for tiles, as in a depthwise convolution.
_FEW_FEATURES, _FEW_CHANNELS = 3, 7
#: The most elements of all parts of the sums.
_PARTS = 2**24
#: Items of a group that adds up parts, and how many of them share a sum of more than a few parts.
_TOTAL_ITEMS, _SLICES, _FEW_PARTS = 256, 8, 8


@dataclass(frozen=True)
class Tile:
    """What a group computes at a time, and what each of its items."""

    rows: int
    cols: int
    #: How many terms of each sum are in local memory at a time.
    depth: int
    item_rows: int
    item_cols: int
    #: Whether tensor cores multiply, by numbers of TF32. Then 32 items compute `warp_rows` by `warp_cols` sums.
    tensor: bool = False
    #: How many tiles of each matrix are copied into local memory ahead; with 0 there are two, which items load.
    stages: int = 0

    @property
    def warp_rows(self) -> int:
        """Rows that 32 items compute with tensor cores: each has two of sixteen."""
        return 8 * self.item_rows

    @property
    def warp_cols(self) -> int:
        """Columns that 32 items compute with tensor cores: each has two of eight."""
        return 4 * self.item_cols

    @property
    def name(self) -> str:
        """How kernels with this tile are called, after what they compute."""
        kind = "_tf32" if self.tensor else f"_{self.stages}" if self.stages else ""
        return f"{self.rows}x{self.cols}x{self.depth}_{self.item_rows}x{self.item_cols}{kind}"

    @property
    def items(self) -> int:
        """Work items in a group."""
        return (self.rows // self.item_rows) * (self.cols // self.item_cols)

    @property
    def padding(self) -> int:
        """Elements between the rows of a tile in local memory."""
        return _TENSOR_PADDING if self.tensor else _PADDING

    def local_bytes(self, dtype: str) -> int:
        """Return how much local memory a group takes for tiles of both matrices."""
        numbers = (self.stages or 2) * self.depth * (self.rows + self.cols + 2 * self.padding)
        return numbers * np.dtype(work_dtype(dtype)).itemsize


#: By the bytes of an element: tiles of results and of gradients for images, and tiles of gradients for filters.
_TILES = {
    4: [Tile(128, 64, 16, 8, 8), Tile(64, 64, 16, 8, 8), Tile(32, 128, 16, 4, 8), Tile(16, 128, 16, 4, 4)],
    8: [Tile(64, 64, 16, 4, 4), Tile(16, 64, 16, 2, 4)],
}
_WEIGHT_TILES = {
    4: [Tile(128, 128, 16, 8, 8), Tile(64, 64, 16, 8, 8), Tile(32, 128, 16, 4, 8), Tile(16, 128, 16, 4, 4)],
    8: [Tile(64, 64, 16, 4, 4), Tile(16, 64, 16, 2, 4)],
}


#: Those of float32 for tensor cores.
_TENSOR_TILES = [
    *(Tile(128, 64, 16, 4, 16, True), Tile(64, 64, 16, 4, 8, True)),
    *(Tile(32, 128, 16, 4, 8, True), Tile(16, 128, 16, 2, 8, True)),
]
_TENSOR_WEIGHT_TILES = [
    *(Tile(128, 128, 16, 8, 8, True), Tile(64, 64, 16, 4, 8, True)),
    *(Tile(32, 128, 16, 4, 8, True), Tile(16, 128, 16, 2, 8, True)),
]


#: Those of float32 where tiles can be copied in the background, or registers hold larger ones.
_COPIED = {
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


class FilterGroups(NamedTuple):
    """The filters as matrices, one for each group of channels."""

    groups: int
    #: Channels of the result, of each group.
    rows: int
    #: Channels that are summed over, of each group.
    channels: int
    #: From one group, row and channel to the next, in elements of the filters.
    strides: tuple[int, int, int]


def correlate_tiles(context: Context, dtype: str, precision: Precision = "highest") -> list[Tile]:
    """Return the tiles of results and of gradients for images."""
    if _by_tensor_cores(context, dtype, precision):
        return _TENSOR_TILES
    return _fitting(context, dtype, _TILES)


def weight_tiles(context: Context, dtype: str, precision: Precision = "highest") -> list[Tile]:
    """Return the tiles of gradients for filters."""
    if _by_tensor_cores(context, dtype, precision):
        return _TENSOR_WEIGHT_TILES
    return _fitting(context, dtype, _WEIGHT_TILES)


def _by_tensor_cores(context: Context, dtype: str, precision: Precision) -> bool:
    """Tell whether tensor cores multiply. None of their tiles takes more than 48 kB, which GPUs that have them have."""
    return precision == "default" and dtype == "float32" and context.profile.has_tensor_cores


def _fitting(context: Context, dtype: str, tiles: Mapping[int, Sequence[Tile]]) -> list[Tile]:
    """Return the tiles for a dtype, of as many terms as local memory holds.

    Where tiles of float32 are copied in the background, kernels are compiled when they are first taken, see `_chosen`.
    One tile is enough for what does without.
    """
    most = context.profile.local_memory_bytes
    fitting = [
        tile if tile.local_bytes(dtype) <= most else replace(tile, depth=tile.depth // 2)
        for tile in tiles[np.dtype(work_dtype(dtype)).itemsize]
    ]
    copied = dtype == "float32" and context.profile.has_tensor_cores
    return [tile for tile in fitting if tile.rows == _ROWS_WITHOUT_COPIES] if copied else fitting


def correlate_tile_kernels(dtype: str, tiles: Sequence[Tile], instructions: Instructions = "ptx") -> list[Kernel]:
    """Return the kernels that `correlate_by_tiles` takes, but the one that lays out images.

    Some tiles take instructions of the device, or functions that do the same.
    """
    code = functions("convolve/tiles.cl")
    kernels = [_tile_kernel("CORRELATE", dtype, tile, instructions) for tile in tiles]
    return [*kernels, *(_kernel(code[name], dtype) for name in ("pack_blocks", "total_of_parts"))]


def weight_tile_kernels(dtype: str, tiles: Sequence[Tile], instructions: Instructions = "ptx") -> list[Kernel]:
    """Return the kernels that `weights_by_tiles` takes, but the one that lays out images."""
    code = functions("convolve/tiles.cl")
    kernels = [_tile_kernel("WEIGHTS", dtype, tile, instructions) for tile in tiles]
    return [*kernels, _kernel(code["total_of_parts"], dtype)]


def _kernel(code: str, dtype: str, **words: Any) -> Kernel:
    return Kernel("#pragma OPENCL FP_CONTRACT ON\n" + typed(code, dtype, **words))


def _tile_kernel(what: str, dtype: str, tile: Tile, instructions: Instructions) -> Kernel:
    work = work_dtype(dtype)
    wide = _READ // np.dtype(work).itemsize
    across, down = tile.cols // tile.item_cols, tile.rows // tile.item_rows
    # The items of a warp of 32 compute a rectangle of the tile: fewer of them read different numbers.
    tx, ty = f"item % {across}", f"item / {across}"
    if across % 8 == 0 and down % 4 == 0:
        tx = f"item / 32 % {across // 8} * 8 + item % 8"
        ty = f"item / 32 / {across // 8} * 4 + item % 32 / 8"
    code = functions("convolve/tiles.cl")
    vector = f"{C_TYPES[work]}{wide}"
    defines = [f"#define READ(to, at) vstore{wide}(*(__local const {vector} *)&at, 0, to)"]
    # How many neighbouring columns an item has, and its rows and columns.
    near = 2 if tile.tensor else wide
    row, column = f"(r) / {wide} * {wide * down} + ty * {wide} + (r) % {wide}", f"(c) * {across} + tx * {wide}"
    at = "((__local VEC *)(tile))[at]"
    if tile.tensor:
        tx, ty = "item % 4", "item / 4 % 8"
        row, column = f"{_first_row(tile)} + (r) * 8 + ty", f"{_first_column(tile)} + (c) / 2 * 8 + tx * 2"
        pieces = tile.rows // wide
        at = f"(*(__local VEC *)&(tile)[(at) / {pieces}][(at) % {pieces} * {wide}])"
    lanes = ", ".join(f"acc[r][(c) + {i}]" for i in range(near))
    stored = f"{C_TYPES[work]}{near}"
    defines += [
        f"#define ROW(r) (i0 + {row})",
        f"#define COLUMN(c) ({column})",
        f"#define VECTOR_OF(tile, at) {at}",
        f"#define STORE_VECTOR(to, r, c) *(GLOBAL_MEM {stored} *)(to) = ({stored})({lanes})",
    ]
    name = f"{what.lower()}_{tile.name}"
    loop = body(code[f"{what}_{'COPIED' if tile.stages else 'LOADED'}"]).strip() + "\n"
    text = code[what].replace("LOOP\n", loop)
    text = text.replace("MULTIPLY\n", body(code["MULTIPLY_TF32" if tile.tensor else "MULTIPLY"]).strip() + "\n")
    # Emulated instructions exchange numbers by local memory.
    is_emulated = tile.tensor and instructions == "emulated"
    words = {
        "FIRST_ROW": _first_row(tile),
        "FIRST_COLUMN": _first_column(tile),
        "ROUNDING": ROUNDING,
        "EXCHANGE": "its_exchange" if is_emulated else "0",
        "SHARED": f"__local uint its_exchange[{6 * tile.items}];" if is_emulated else "",
        "multiply_add": f"multiply_add_{name}",
    }
    copies = functions(f"gemm/tensor_cores_{instructions}.cl")
    used = _COPIES if tile.stages else ()
    if used:
        # Each kernel of a program has its own.
        words |= {function: f"{function}_{name}" for function in used}
        words |= {"MEMORY": "uint", "ADDRESS_OF": "(ulong)"} if instructions == "ptx" else _EMULATED_MEMORY
    kernel = typed(
        "".join([*(copies[function] for function in used), text]),
        dtype,
        SIDES=tile.stages or 2,
        PENDING=tile.stages - 2,
        **{what: name},
        **words,
        ITEMS=tile.items,
        ROWS=tile.rows,
        COLS=tile.cols,
        DEPTH=tile.depth,
        PADDING=tile.padding,
        TENSOR_PADDING=_TENSOR_PADDING * tile.tensor,
        ITEM_ROWS=tile.item_rows,
        ITEM_COLS=tile.item_cols,
        WIDE=near,
        VEC=vector,
        SAME=int(work == np.dtype(dtype).name),
        TX=tx,
        TY=ty,
        W_VECS=tile.rows * tile.depth // wide,
        W_LOADS=-(-tile.rows * tile.depth // wide // tile.items),
        T_LOADS=tile.rows * tile.depth // tile.items,
        X_LOADS=tile.cols * tile.depth // tile.items,
    )
    undefined = "\n".join(f"#undef {name}" for name in ("READ", "ROW", "COLUMN", "VECTOR_OF", "STORE_VECTOR"))
    called = multiply_add_function(f"_{name}", instructions) if tile.tensor else ""
    head = "#pragma OPENCL FP_CONTRACT ON\n" + called + "\n".join(defines) + "\n"
    return Kernel(head.replace("VEC *", f"{vector} *") + kernel + undefined + "\n", name)


def _first_row(tile: Tile) -> str:
    """Return where in a tile the rows of a warp begin, in the words of the kernel."""
    return f"(item / 32 % {tile.rows // tile.warp_rows} * {tile.warp_rows})"


def _first_column(tile: Tile) -> str:
    return f"(item / 32 / {tile.rows // tile.warp_rows} * {tile.warp_cols})"


def suits(plan: ConvolutionPlan, channels: int, features: int, outputs: int) -> bool:
    """Tell whether tiles compute a group of channels: not few numbers, and none beyond indexes of 32 bits."""
    per_channel = max(plan.layout.channel, size_of(plan.layout.lengths))
    taps = sum(len(product.taps) for product in plan.products)
    reach = max(channels * per_channel, features * outputs, features * channels * taps)
    return reach < _REACH and (features > _FEW_FEATURES or channels > _FEW_CHANNELS)


def correlate_by_tiles(
    kernels: Kernels,
    context: Context,
    plan: ConvolutionPlan,
    images: Array,
    filters: Array,
    shape: FilterGroups,
    out: Array,
    tile: Tile | None = None,
    parts: int | None = None,
    precision: Precision = "highest",
) -> None:
    """Compute products of filters and images, as `optdb.codegen.convolve.correlate.correlate` does."""
    if not plan.products:
        return
    work = work_dtype(out.dtype)
    reading = _Images(context, plan, images, work)
    columns = reading.at_once * max(len(product.targets) for product in reading.readings)
    if tile is None:
        kernels, tile = _chosen(kernels, context, "CORRELATE", out.dtype.name, precision, shape.rows)
    image = size_of(out.shape[1:])
    if work != out.dtype.name or not plan.complete:
        parts = 1
    elif parts is None:
        depth = shape.channels * max(len(product.taps) for product in reading.readings)
        parts = parts_of_terms(context, tile, -(-shape.rows // tile.rows) * shape.groups, columns, depth)
    steps = [_TiledProduct(reading, shape, tile, parts, i) for i in range(len(plan.products))]
    sizes = [1 if parts == 1 else parts * reading.at_once * image, *(step.filters for step in steps)]
    with scratch(context, work, reading.memory, *sizes) as (y, sums, *packed):
        for step, w in zip(steps, packed):
            step.pack(kernels, filters, w)
        for first, some, x in reading.laid_out(kernels, y):
            z = some_of(out, first, some)
            for step, w in zip(steps, packed):
                step.multiply(kernels, some, x, w, z if parts == 1 else sums, out.shape)
            if parts != 1:
                _add_up(kernels, some * image, parts, sums, z)


class _TiledProduct:
    """One product of a convolution or a gradient for images, and its tables."""

    def __init__(self, reading: _Images, shape: FilterGroups, tile: Tile, parts: int, index: int) -> None:
        self._reading, self._shape, self._tile, self._parts = reading, shape, tile, parts
        self._product = reading.readings[index]
        self._terms, self._spots, self._targets, self._places = reading.tables(shape.channels, shape.strides[2], index)
        self._blocks = -(-shape.rows // tile.rows)
        self._depth = shape.channels * len(self._product.taps)
        self._padded = -(-self._depth // tile.depth) * tile.depth
        #: Elements of the packed filters.
        self.filters = shape.groups * self._blocks * tile.rows * self._padded

    def pack(self, kernels: Kernels, filters: Array, w: Array) -> None:
        """Lay out filters block by block."""
        by_group, by_row, _ = self._shape.strides
        numbers = [self._shape.rows, self._tile.rows, self._blocks, self._depth, self._padded, by_group, by_row]
        kernels["pack_blocks"].scall(self.filters, self.filters, *numbers, self._places, filters, w)

    def multiply(self, kernels: Kernels, images: int, x: Array, w: Array, z: Array, shape: Sequence[int]) -> None:
        """Multiply packed filters and some images; the result's shape is `shape`, but for their number."""
        tile, product, reading = self._tile, self._product, self._reading
        outputs, plane = len(product.targets), size_of(shape[2:])
        columns = images * outputs
        each = -(-self._padded // (self._parts * tile.depth)) * tile.depth
        numbers = [self._padded, self._shape.rows, columns, outputs, int(product.in_order and outputs == plane), each]
        steps = [reading.image, reading.channel * self._shape.channels, plane, images * size_of(shape[1:])]
        items = self._blocks * -(-columns // tile.cols) * tile.items
        arrays = [x, w, self._terms, self._spots, self._targets, z]
        grid = (items, self._shape.groups, self._parts)
        kernels[f"correlate_{tile.name}"].call(grid, (tile.items, 1, 1), *numbers, *steps, *arrays)


def weights_by_tiles(
    kernels: Kernels,
    context: Context,
    plan: ConvolutionPlan,
    groups: int,
    x: Array,
    t: Array,
    out: Array,
    tile: Tile | None = None,
    parts: int | None = None,
    precision: Precision = "highest",
) -> None:
    """Compute the gradient for filters, as `optdb.codegen.convolve.weights.weights` does."""
    work = work_dtype(out.dtype)
    channels, features = x.shape[1] // groups, t.shape[1] // groups
    reading = _Images(context, plan, x, work)
    product = reading.readings[0]
    depth, outputs = channels * len(product.taps), len(product.targets)
    terms, spots, _, _ = reading.tables(channels, 0, 0)
    if tile is None:
        kernels, tile = _chosen(kernels, context, "WEIGHTS", out.dtype.name, precision, features, depth)
    tiles = -(-features // tile.rows) * -(-depth // tile.cols)
    parts = parts or parts_of_pixels(context, tile, tiles * groups, groups * features * depth)
    pixels = reading.at_once * outputs
    each = largest(-(-pixels // parts), _PART)
    each = -(-each // tile.depth) * tile.depth
    parts = -(-pixels // each)
    sums = groups * features * depth
    # One part that is all there is needs no adding up.
    direct = work == out.dtype.name and parts == 1
    with scratch(context, work, reading.memory, 1 if direct else parts * sums) as (y, partial):
        total = out if direct else partial
        for first, some, images in reading.laid_out(kernels, y):
            numbers = [depth, features, outputs, int(first == 0), some * outputs, each]
            args = [reading.image, reading.channel * channels, images, some_of(t, first, some), terms, spots, total]
            grid = (tiles * tile.items, groups, -(-some * outputs // each))
            kernels[f"weights_{tile.name}"].call(grid, (tile.items, 1, 1), *numbers, *args)
        if not direct:
            _add_up(kernels, sums, parts, partial, out)


def _add_up(kernels: Kernels, count: int, parts: int, sums: Array, z: Array) -> None:
    slices = 1 if parts <= _FEW_PARTS else _SLICES
    groups = -(-count // (_TOTAL_ITEMS // slices))
    kernels["total_of_parts"].call(groups * _TOTAL_ITEMS, _TOTAL_ITEMS, count, parts, slices, sums, z)


class _Images:
    """How the images of one call are read: where they lie, or laid out some at a time."""

    def __init__(self, context: Context, plan: ConvolutionPlan, images: Array, work: str) -> None:
        self._context, self._plan, self._images = context, plan, images
        in_place = plan.readings is not None and images.dtype.name == work and is_contiguous(images)
        #: The products to compute.
        self.readings: Sequence[Reading] = (
            plan.readings if in_place else [reading_of(product) for product in plan.products]
        )
        #: Elements of a channel, and of an image.
        self.channel = size_of(plan.layout.lengths) if in_place else plan.layout.channel
        self.image = images.shape[1] * self.channel
        #: How many images are computed with at a time.
        most = _REACH // max(len(reading.targets) for reading in self.readings)
        count = images.shape[0]
        at_once = count if in_place else images_at_once(context, self.image, work, count)
        self.at_once = at_once if at_once <= most else most
        #: Elements of the memory that images are laid out in.
        self.memory = 1 if in_place else self.at_once * self.image
        self._in_place = in_place

    def tables(self, channels: int, by_channel: int, index: int) -> Sequence[Array]:
        """Return terms, spots and targets of a product, and where the filter of each term lies, see ``tiles.cl``."""
        product = self.readings[index]
        # They are made for numbers of channels and lengths of images: exported files hold for these.
        channels, by_channel, channel = map(specialize, (channels, by_channel, self.channel))

        def make() -> list[np.ndarray]:
            count = channels * len(product.taps)
            # Tiles are full, and terms are read a tile ahead.
            terms, places = np.zeros((count + 2 * _MOST_TERMS, 2), np.int32), np.zeros(count, np.int32)
            terms[:count, 0] = (np.arange(channels)[:, None] * channel + product.offsets).ravel()
            terms[:count, 1] = np.tile(product.bits, channels)
            places[:] = (np.arange(channels)[:, None] * by_channel + product.taps).ravel()
            return [terms.ravel(), np.stack([product.starts, product.inside], 1).ravel(), product.targets, places]

        return tables(self._context, (__name__, self._plan, channels, by_channel, index, self._in_place), make)

    def laid_out(self, kernels: Kernels, y: Array) -> Iterator[tuple[int, int, Array]]:
        """Yield the index of the first of some images, their number, and them, see `laid_out`."""
        shifts = tables_of(self._context, self._plan, 1)[0]
        y = None if self._in_place else y
        return laid_out(kernels, self._context, self._plan.layout, shifts, self._images, self.at_once, y)


def _chosen(
    kernels: Kernels, context: Context, what: str, dtype: str, precision: Precision, rows: int, cols: int = 1
) -> tuple[Kernels, Tile]:
    """Return the tile for a product, and kernels with it.

    Kernels with the instructions of one vendor's devices are compiled when they are first taken, and not for files.
    """
    by_tensor_cores = _by_tensor_cores(context, dtype, precision)
    if dtype == "float32" and context.profile.has_tensor_cores and not by_tensor_cores and tracing() is None:
        tile = choose(_COPIED[what], rows, cols)
        compiled = context.kept.setdefault(__name__, LaunchCache(_KEPT))
        copied = compiled.get((what, tile), lambda: _compiled(context, what, tile))
        if copied is not None:
            return {**kernels, **copied}, tile
    tiles = correlate_tiles if what == "CORRELATE" else weight_tiles
    return kernels, choose(tiles(context, dtype, precision), rows, cols)


def _compiled(context: Context, what: str, tile: Tile) -> Kernels | None:
    """Return the kernel with a tile; None if the device cannot have it."""
    profile = context.profile
    if tile.items > profile.max_local_size or tile.local_bytes("float32") > profile.local_memory_bytes:
        return None
    try:
        return compile_kernels([_tile_kernel(what, "float32", tile, _INSTRUCTIONS)], context, "a convolution")
    except BuildError as error:
        _logger.warning("Convolutions load tiles through registers, since a kernel does not build:\n%s", error.log)
        return None


def choose(tiles: Sequence[Tile], rows: int, cols: int = 1) -> Tile:
    """Return the tile that is the fastest for filters, or features by terms: large, but not empty."""

    def cost(tile: Tile) -> tuple[float, int]:
        padded = -(-rows // tile.rows) * tile.rows * -(-cols // tile.cols) * (tile.cols if cols > 1 else 1)
        return padded / _SPEED.get(tile.rows, 1), -tile.rows

    return min(tiles, key=cost)


def parts_of_terms(context: Context, tile: Tile, blocks: int, columns: int, depth: int) -> int:
    """Return in how many parts the terms of sums are divided, where tiles are too few to keep all units busy."""
    most = min(depth // _TERMS_OF_PART, _MOST_PARTS)
    for parts in range(1, most):
        if blocks * -(-columns // tile.cols) * tile.items * parts >= context.profile.compute_units * _BUSY_BY_TERMS:
            return parts
    return max(most, 1)


def parts_of_pixels(context: Context, tile: Tile, tiles: int, sums: int) -> int:
    """Return in how many parts pixels are divided, so that groups fill all compute units evenly."""
    slots = context.profile.compute_units * max(_BUSY // tile.items, 1)
    most = max(min(-(-2 * slots // tiles), _PARTS // sums), 1)

    def filled(parts: int) -> float:
        return tiles * parts / (-(-tiles * parts // slots) * slots)

    best = max(map(filled, range(1, most + 1)))
    return next(parts for parts in range(1, most + 1) if filled(parts) >= 0.95 * best)

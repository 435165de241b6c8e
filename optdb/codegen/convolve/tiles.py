"""Convolutions and their gradients on a GPU, as implicit matrix products.

Kernels read tiles of the image matrix directly from the images ("implicit GEMM": Chetlur et al., "cuDNN: efficient
primitives for deep learning", 2014). For each row of the image matrix, one table contains the offset of the row's
channel and tap. For each column, a second table contains the image index at which an output's reads start, and a bit
mask of the taps inside the image. Images are packed, with zero padding, if they are not contiguous, if they are
float16, or if filters have more taps than the mask has bits.

If a result has too few tiles to occupy all compute units, sums are split into parts, and a second kernel adds up the
parts in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optdb.codegen.convolve.packing import ConvolutionCall, FilterGroups, Images, images_at_once, some_of
from optdb.codegen.convolve.plan import ConvolutionPlan, TapProduct
from optdb.codegen.convolve.tile_kernels import chosen, cost, own_tiles, parts_of_pixels, parts_of_terms
from optdb.codegen.layout import is_contiguous, size_of
from optdb.codegen.operation import Kernels
from optdb.codegen.scratch import scratch, tables
from optdb.codegen.source import work_dtype
from optdb.numpy_types import HostArray
from optdb.runtime.arrays import Array
from optdb.runtime.sizes import largest, specialize

#: Maximum number of elements for 32-bit indexes, which leaves room for partial tiles.
_REACH = 2**31 - 2**16
#: Maximum number of terms in a tile.
_MOST_TERMS = 32
#: Minimum number of pixels in a part.
_PART = 256
#: Tiles are not used for groups with at most this many features and channels, as in a depthwise convolution.
_FEW_FEATURES, _FEW_CHANNELS = 3, 7
#: Work-group size of the kernel that adds up parts. Number of items that share a sum if there are many parts. Maximum
#: number of parts for which one item adds up a sum.
_TOTAL_ITEMS, _SLICES, _FEW_PARTS = 256, 8, 8


def suits(plan: ConvolutionPlan, channels: int, features: int, outputs: int) -> bool:
    """Return whether a group of channels is large enough for tiles, and small enough for 32-bit indexes."""
    per_channel = max(plan.layout.channel, size_of(plan.layout.lengths))
    taps = sum(len(product.taps) for product in plan.products)
    reach = max(channels * per_channel, features * outputs, features * channels * taps)
    return reach < _REACH and (features > _FEW_FEATURES or channels > _FEW_CHANNELS)


def correlate_by_tiles(
    call: ConvolutionCall, plan: ConvolutionPlan, images: Array, filters: FilterGroups, out: Array
) -> None:
    """Compute products of filters and images; arguments are as in `optdb.codegen.convolve.products.correlate`."""
    if not plan.products:
        return
    context, work = call.context, work_dtype(out.dtype)
    reading = _Images(call, plan, images, work)
    columns = reading.at_once * max(len(product.targets) for product in reading.readings)
    kernels, tile = chosen(call, out.dtype.name, filters.rows)
    plane, image = size_of(out.shape[2:]), size_of(out.shape[1:])
    blocks = -(-filters.rows // tile.rows)
    depths = [filters.channels * len(product.taps) for product in reading.readings]
    parts = 1
    if work == out.dtype.name and plan.complete:
        parts = parts_of_terms(context, tile, blocks * filters.groups, columns, max(depths))
    by_group, by_row, by_channel = filters.strides
    of_products = [reading.tables(filters.channels, by_channel, i) for i in range(len(plan.products))]
    padded = [-(-depth // tile.depth) * tile.depth for depth in depths]
    filters_sizes = [filters.groups * blocks * tile.rows * terms for terms in padded]
    sizes = [1 if parts == 1 else parts * reading.at_once * image, *filters_sizes]
    with scratch(context, work, reading.memory, *sizes) as (y, sums, *packed):
        for (*_, offsets), depth, terms, count, w in zip(of_products, depths, padded, filters_sizes, packed):
            numbers = [filters.rows, tile.rows, blocks, depth, terms, by_group, by_row]
            kernels["pack_blocks"].scall(count, count, *numbers, offsets, filters.array, w)
        for first, some, x in reading.batches(y):
            z = some_of(out, first, some)
            for product, (*product_tables, _), terms, w in zip(reading.readings, of_products, padded, packed):
                outputs = len(product.targets)
                columns, each = some * outputs, -(-terms // (parts * tile.depth)) * tile.depth
                numbers = [terms, filters.rows, columns, outputs, int(product.in_order and outputs == plane), each]
                steps = [reading.image, reading.channel * filters.channels, plane, some * image]
                grid = (blocks * -(-columns // tile.cols) * tile.items, filters.groups, parts)
                args = [*numbers, *steps, x, w, *product_tables, z if parts == 1 else sums]
                kernels[f"correlate_{tile.name}"].call(grid, (tile.items, 1, 1), *args)
            if parts != 1:
                _add_up(kernels, some * image, parts, sums, z)


def weights_by_tiles(call: ConvolutionCall, plan: ConvolutionPlan, groups: int, x: Array, t: Array, out: Array) -> None:
    """Compute the gradient with respect to filters; see `optdb.codegen.convolve.products.weights`."""
    kernels, context, work = call.kernels, call.context, work_dtype(out.dtype)
    channels, features = x.shape[1] // groups, t.shape[1] // groups
    reading = _Images(call, plan, x, work)
    product = reading.readings[0]
    depth, outputs = channels * len(product.taps), len(product.targets)
    terms, spots, _, _ = reading.tables(channels, 0, 0)
    own = own_tiles("WEIGHTS", context, out.dtype.name, call.precision)
    tile = min(own, key=lambda tile: cost(tile, features, depth))
    tiles = -(-features // tile.rows) * -(-depth // tile.cols)
    parts = parts_of_pixels(context, tile, tiles * groups, groups * features * depth)
    pixels = reading.at_once * outputs
    each = largest(-(-pixels // parts), _PART)
    each = -(-each // tile.depth) * tile.depth
    parts = -(-pixels // each)
    sums = groups * features * depth
    # A single part needs no second kernel.
    direct = work == out.dtype.name and parts == 1
    with scratch(context, work, reading.memory, 1 if direct else parts * sums) as (y, partial):
        total = out if direct else partial
        for first, some, images in reading.batches(y):
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


class _Images(Images):
    """The images of one call, and the tables that tile kernels read."""

    def __init__(self, call: ConvolutionCall, plan: ConvolutionPlan, images: Array, work: str) -> None:
        readings = plan.readings if images.dtype.name == work and is_contiguous(images) else None
        in_place = readings is not None
        #: The products to compute.
        self.readings: Sequence[TapProduct] = plan.products if readings is None else readings
        #: Number of elements in a channel of an image, and in a whole image.
        self.channel = size_of(plan.layout.lengths) if in_place else plan.layout.channel
        self.image = images.shape[1] * self.channel
        # Outputs have 32-bit indexes.
        most = _REACH // max(len(reading.targets) for reading in self.readings)
        count = images.shape[0]
        at_once = count if in_place else images_at_once(call.context, self.image, work, count)
        super().__init__(call, plan, images, at_once if at_once <= most else most, in_place)

    def tables(self, channels: int, by_channel: int, index: int) -> Sequence[Array]:
        """Return the tables that ``tiles.cl`` calls terms, spots and targets, and each term's offset in a filter."""
        product = self.readings[index]
        # Tables depend on channel counts and image lengths, so exported files are specialized for both.
        channels, by_channel, channel = map(specialize, (channels, by_channel, self.channel))

        def make() -> list[HostArray]:
            count = channels * len(product.taps)
            # The table is padded, because kernels read the last tile completely, and read terms one tile ahead.
            terms, filter_offsets = np.zeros((count + 2 * _MOST_TERMS, 2), np.int32), np.zeros(count, np.int32)
            terms[:count, 0] = (np.arange(channels)[:, None] * channel + product.offsets).ravel()
            terms[:count, 1] = np.broadcast_to(product.bits, (channels, len(product.taps))).ravel()
            filter_offsets[:] = (np.arange(channels)[:, None] * by_channel + product.taps).ravel()
            return [
                terms.ravel(),
                np.stack(np.broadcast_arrays(product.starts, product.inside), 1).ravel().astype(np.int32),
                product.targets.ravel().astype(np.int32),
                filter_offsets,
            ]

        return tables(self._call.context, (__name__, self._plan, channels, by_channel, index, self._in_place), make)

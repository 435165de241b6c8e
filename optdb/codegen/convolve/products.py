"""Convolutions and their gradients, computed by multiplying filters or gradients with packed images.

On CPUs, a work item keeps a block of sums in registers. In a convolution, a block has several filters and several
vectors of neighbouring outputs; in a gradient with respect to filters, it has several channel-tap pairs and one vector
of features. GPUs compute tiles (see `optdb.codegen.convolve.tiles`), unless groups have few channels, as in a depthwise
convolution. Partial sums are added in order, so results are deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optdb.codegen.convolve import packing
from optdb.codegen.convolve.geometry import Axis
from optdb.codegen.convolve.packing import ConvolutionCall, FilterGroups, Images, some_of
from optdb.codegen.convolve.plan import ChannelLayout, ConvolutionPlan, forward
from optdb.codegen.convolve.tile_kernels import kernels_by_tiles, own_tiles
from optdb.codegen.convolve.tiles import correlate_by_tiles, suits, weights_by_tiles
from optdb.codegen.gemm.problem import Precision
from optdb.codegen.gemm.tensor_cores import instructions_of
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import is_contiguous, launch_chunks, share, size_of
from optdb.codegen.scratch import scratch
from optdb.codegen.source import filled, functions, work_dtype
from optdb.runtime.arrays import Array
from optdb.runtime.sizes import largest, smallest

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Size of a CPU work item's block: the number of filters, and the number of output vectors.
_BLOCKS = {"correlate": (8, 2), "correlate_few": (1, 8)}
#: If there are at most this many filters or features, a CPU processes them one by one.
_FEW = 3
#: Number of image elements that a CPU work item reads before it proceeds to the next filters.
_NEAR = 32768
#: Number of channel-tap pairs that a CPU work item multiplies by a vector of features.
_BLOCK = 8
#: Number of elements of images and features that a CPU work item reads before it proceeds to the next tile.
_NEAR_ELEMENTS = 65536
#: Side length of the square tiles in which partial sums are added up and transposed, by kind of device.
_SQUARES = {"cpu": 16, "gpu": 1}
#: Maximum total number of elements in all partial sums, unless a single part has more.
_PARTS = 2**22


def correlate_kernels(dtype: str, context: Context, precision: Precision = "highest") -> list[Kernel]:
    """Return the kernels that `correlate` launches."""
    code = functions("convolve/correlate.cl")
    if context.profile.runs_items_serially:
        text = "".join(
            filled(code["CORRELATE"], CORRELATE=name, ROWS=rows, VECTORS=vectors)
            for name, (rows, vectors) in _BLOCKS.items()
        )
        return packing.convolution_kernels(dtype, context, text, ["pack_images", "pack_filters"])
    few = packing.convolution_kernels(dtype, context, code["correlate_few"], ["pack_images", "pack_filters"])
    tiles = own_tiles("CORRELATE", context, dtype, precision)
    return [*few, *kernels_by_tiles("CORRELATE", dtype, tiles, instructions_of(context))]


def lanes(dtype: str, context: Context) -> int:
    """Return the vector width of plans for `correlate`."""
    return packing.width_of(context, dtype) if context.profile.needs_explicit_vectors else 1


def correlate(call: ConvolutionCall, plan: ConvolutionPlan, images: Array, filters: FilterGroups, out: Array) -> None:
    """Compute products of filters and images with the kernels of `correlate_kernels`.

    Images have the shape (images, channels, two or three axes) and any strides; filters and the result, `out`, are
    contiguous. No array is empty. Elements of `out` stay unchanged if no product of the plan writes them.
    """
    context, layout, products = call.context, plan.layout, plan.products
    _, groups, rows, channels, _ = filters
    serial = context.profile.runs_items_serially
    if not serial and suits(plan, channels, rows, size_of(out.shape[2:])):
        correlate_by_tiles(call, plan, images, filters, out)
        return
    work = work_dtype(out.dtype)
    name = "correlate" if serial and rows > _FEW else "correlate_few"
    block = _BLOCKS[name][0]
    blocks = -(-rows // block)
    of_products = packing.tables_of(context, plan, channels)
    in_place = _needs_no_packing(images, layout, work) and all(product.fits(layout) for product in products)
    image = images.shape[1] * layout.channel
    at_once = images.shape[0] if in_place else packing.images_at_once(context, image, work, images.shape[0])
    reading = Images(call, plan, images, at_once, in_place)
    width = lanes(out.dtype.name, context)
    # `near` is the number of vectors that a CPU work item processes before it proceeds to the next filters.
    near, target_items = max(_NEAR // (width * channels), 1), context.profile.compute_units * 8
    steps = [image, layout.channel * channels, size_of(out.shape[2:])]
    sizes = [groups * blocks * block * channels * len(product.taps) for product in products]
    with scratch(context, work, 1 if in_place else reading.memory + width, *sizes) as (y, *packed):
        for (taps, *_), w in zip(of_products, packed):
            packing.pack_filters(call, taps, filters, w, block)
        for first, count, x in reading.batches(y):
            z = some_of(out, first, count)
            for product, (_, *product_tables), w in zip(products, of_products, packed):
                sizes = [channels * len(product.taps), rows, blocks, count, groups, len(product.starts)]
                columns, arrays = count * len(product.starts), [x, w, *product_tables, z]
                if not serial:
                    call.kernels[name].scall((columns, groups * rows), *sizes, 1, 1, *steps, *arrays)
                    continue
                parts = largest(-(-target_items // groups), -(-columns // near))
                v_items, v_chunk = share(columns, parts, multiple=_BLOCKS[name][1])
                b_items, b_chunk = share(blocks, -(-target_items // (groups * v_items)))
                grid = (v_items, b_items, groups)
                call.kernels[name].call(grid, (1, 1, 1), *sizes, v_chunk, b_chunk, *steps, *arrays)


def _needs_no_packing(images: Array, layout: ChannelLayout, work: str) -> bool:
    # With a stride, each piece of a packed image skips elements, even if padding makes the piece as long as the image.
    is_strided = any(step > 1 for step in layout.steps)
    is_unpacked = not is_strided and layout.extents == layout.lengths and layout.shifts == ((0,),) * len(layout.lengths)
    return images.dtype.name == work and is_unpacked and is_contiguous(images)


def weights_kernels(dtype: str, context: Context, precision: Precision = "highest") -> list[Kernel]:
    """Return the kernels that `weights` launches."""
    code, on_cpu = functions("convolve/weights.cl"), context.profile.runs_items_serially
    text = (code["weights_blocks"] if on_cpu else "") + code["weights_few"] + code["add_up"]
    text = filled(text, BLOCK=_BLOCK, SQUARE=_SQUARES[context.profile.device_kind])
    packed = ["pack_images", "pack_features"] if on_cpu else ["pack_images"]
    kernels = packing.convolution_kernels(dtype, context, text, packed)
    if on_cpu:
        return kernels
    tiles = own_tiles("WEIGHTS", context, dtype, precision)
    return [*kernels, *kernels_by_tiles("WEIGHTS", dtype, tiles, instructions_of(context))]


def weights(
    call: ConvolutionCall, axes: Sequence[Axis], flip: bool, groups: int, x: Array, t: Array, out: Array
) -> None:
    """Compute the gradient with respect to filters, given images `x` and the result's gradient `t`.

    The kernels come from `weights_kernels`. The convolution reverses filters if `flip` is true, and has `groups` groups
    of channels. Images may have any strides; `t` and the result, `out`, are contiguous. No array is empty.
    """
    context, plan = call.context, forward(tuple(axes), flip, 1)
    layout = plan.layout
    serial, channels, features = context.profile.runs_items_serially, x.shape[1] // groups, t.shape[1] // groups
    if not serial and suits(plan, channels, features, size_of(t.shape[2:])):
        weights_by_tiles(call, plan, groups, x, t, out)
        return
    work, width, plane = work_dtype(out.dtype), packing.width_of(context, x.dtype.name), size_of(t.shape[2:])
    depth, lines = channels * size_of([axis.taps for axis in axes]), axes[0].out * axes[1].out
    # Either features are processed one by one, or each pixel's features are packed and padded.
    few = features <= _FEW or not serial
    padded = features if few else -(-features // width) * width
    packed_features = 0 if few else plane * groups * padded
    tiles = groups * (depth * features if few else -(-depth // _BLOCK) * (padded // width))
    in_place = _needs_no_packing(x, layout, work)
    image = x.shape[1] * layout.channel
    at_once = packing.images_at_once(context, max(image, packed_features), work, x.shape[0])
    reading = Images(call, plan, x, at_once, in_place)
    items, sums = context.profile.compute_units * 4, groups * depth * padded
    most_parts = items if serial else -(-items * 256 // tiles)
    rows_each = share(at_once * lines, smallest(most_parts, max(_PARTS // sums, 1)))[1]
    most_parts = -(-at_once * lines // rows_each)
    near = max(_NEAR_ELEMENTS // (plane // lines * (groups * (channels + padded))), 1)
    kernel = call.kernels["weights_few" if few else "weights_blocks"]
    [(_, offsets, pixels, *_)] = packing.tables_of(context, plan, channels)
    numbers = [*(axis.out for axis in axes), *layout.extents[1:], image, layout.channel * channels]
    lengths = [reading.memory, max(at_once * packed_features, 1), most_parts * sums]
    with scratch(context, work, *lengths) as (packed_x, packed_t, parts):
        for first, count, some_x in reading.batches(packed_x):
            some_t = some_of(t, first, count)
            if not few:
                packing.pack_features(call, some_t, packed_t, (count, groups, features, plane), padded)
                some_t = packed_t
            rows = count * lines
            row_sizes = [depth, groups, features, padded, rows, rows_each, near]
            args = [int(first == 0), *numbers, some_x, some_t, offsets, pixels, parts]
            some_parts = -(-rows // rows_each)
            if serial:
                of_tiles, chunk = share(tiles, -(-items // some_parts))
                kernel.call((of_tiles, some_parts), (1, 1), *row_sizes, chunk, *args)
            else:
                kernel.scall((tiles, some_parts), *row_sizes, 1, *args)
        square = _SQUARES[context.profile.device_kind]
        squares = groups * -(-depth // square) * -(-features // square)
        args = [most_parts, depth, groups, features, padded, parts, out]
        launch_chunks(call.kernels["add_up"], context, squares, *args, least=1)

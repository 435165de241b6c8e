"""Gradients for filters: products of images with gradients of results.

Each element of a filter's gradient is a sum over all pixels of all images. The pixels are divided
among work items, which compute partial sums; a second kernel adds these in order, so that results
are deterministic.

CPUs multiply one pixel, for several channels and taps, by a vector of features at a time; the features of each pixel
are packed for this. GPUs compute tiles, see :mod:`optdb.codegen.convolve.tiles`, unless there are few features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optdb.codegen.convolve.geometry import Axis
from optdb.codegen.convolve.packing import (
    Kernels,
    convolution_kernels,
    images_at_once,
    laid_out,
    pack_features,
    some_of,
    tables_of,
    width_of,
)
from optdb.codegen.convolve.plan import forward
from optdb.codegen.convolve.tile_kernels import kernels_by_tiles, own_tiles
from optdb.codegen.convolve.tiles import suits, weights_by_tiles
from optdb.codegen.gemm.problem import Precision
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import is_contiguous, launch_chunks, share, size_of
from optdb.codegen.scratch import scratch
from optdb.codegen.source import filled, functions, work_dtype
from optdb.runtime.arrays import Array
from optdb.runtime.sizes import smallest

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Number of channel-tap pairs that a CPU work item multiplies by a vector of features.
_BLOCK = 8
#: A CPU processes up to this many features one by one.
_FEW = 3
#: Number of image and feature elements that an item reads before the next tile.
_NEAR = 65536
#: Side of the square tiles in which parts are added up and transposed.
_SQUARES = {"cpu": 16, "gpu": 1}
#: Maximum number of elements in all partial sums together, unless a single part has more.
_PARTS = 2**22


def weights_kernels(dtype: str, context: Context, precision: Precision = "highest") -> list[Kernel]:
    """Return the kernels that `weights` launches."""
    code, on_cpu = functions("convolve/weights.cl"), context.profile.runs_items_serially
    text = (code["weights_blocks"] if on_cpu else "") + code["weights_few"] + code["add_up"]
    text = filled(text, BLOCK=_BLOCK, SQUARE=_SQUARES[context.profile.device_kind])
    packing = ["pack_images", "pack_features"] if on_cpu else ["pack_images"]
    kernels = convolution_kernels(dtype, context, text, packing)
    if on_cpu:
        return kernels
    tiles = own_tiles("WEIGHTS", context, dtype, precision)
    return [*kernels, *kernels_by_tiles("WEIGHTS", dtype, tiles, context.options.instructions)]


def weights(
    kernels: Kernels,
    context: Context,
    axes: Sequence[Axis],
    flip: bool,
    groups: int,
    x: Array,
    t: Array,
    out: Array,
    precision: Precision = "highest",
) -> None:
    """Compute the gradient for filters from images `x` and the gradient `t` of the result, with `weights_kernels`.

    The convolution reverses filters if `flip` is true, and has `groups` groups of channels. Images may have any
    strides; `t` and the result, `out`, are contiguous. No array is empty.
    """
    plan = forward(tuple(axes), flip, 1)
    layout = plan.layout
    serial, channels, features = context.profile.runs_items_serially, x.shape[1] // groups, t.shape[1] // groups
    if not serial and suits(plan, channels, features, size_of(t.shape[2:])):
        weights_by_tiles(kernels, context, plan, groups, x, t, out, precision=precision)
        return
    sizes = _WeightGradientSizes(context, axes, groups, x, t)
    work = work_dtype(out.dtype)
    in_place = x.dtype.name == work and layout.is_unpacked and is_contiguous(x)
    image = x.shape[1] * layout.channel
    at_once = images_at_once(context, max(image, sizes.image), work, x.shape[0])
    rows_each = _rows_each(context, sizes, at_once * sizes.lines)
    most_parts = -(-at_once * sizes.lines // rows_each)
    shifts, [(_, offsets, pixels, *_)] = tables_of(context, plan, sizes.channels)
    numbers = [*(axis.out for axis in axes), *layout.extents[1:], image, layout.channel * sizes.channels]
    lengths = [1 if in_place else at_once * image, max(at_once * sizes.image, 1), most_parts * sizes.sums]
    with scratch(context, work, *lengths) as (packed_x, packed_t, parts):
        for first, count, some_x in laid_out(
            kernels, context, layout, shifts, x, at_once, None if in_place else packed_x
        ):
            some_t = some_of(t, first, count)
            if sizes.packing:
                whole = (count, groups, sizes.features, sizes.plane)
                pack_features(kernels, context, some_t, packed_t, whole, sizes.padded)
                some_t = packed_t
            args = [*numbers, some_x, some_t, offsets, pixels, parts]
            _launch(kernels, context, sizes, count * sizes.lines, rows_each, first == 0, args)
        square = _SQUARES[context.profile.device_kind]
        squares = groups * -(-sizes.depth // square) * -(-sizes.features // square)
        args = [most_parts, sizes.depth, groups, sizes.features, sizes.padded, parts, out]
        launch_chunks(kernels["add_up"], context, squares, *args, least=1)


class _WeightGradientSizes:
    """Sizes for multiplying images `x` by the result's gradient `t`."""

    def __init__(self, context: Context, axes: Sequence[Axis], groups: int, x: Array, t: Array) -> None:
        width = width_of(context, x.dtype.name)
        #: Number of groups, and number of channels and features in each group.
        self.groups = groups
        self.channels, self.features = x.shape[1] // groups, t.shape[1] // groups
        #: Number of channels times taps.
        self.depth = self.channels * size_of([axis.taps for axis in axes])
        #: Number of pixel rows, and of pixels, in an image of the result.
        self.lines, self.plane = axes[0].out * axes[1].out, size_of(t.shape[2:])
        #: Whether features are processed one by one; otherwise each pixel's features are packed.
        self.few = self.features <= _FEW or not context.profile.runs_items_serially
        self.packing = not self.few
        #: Padded number of features in a group, and number of elements in an image's packed features.
        self.padded = -(-self.features // width) * width if self.packing else self.features
        self.image = self.plane * groups * self.padded if self.packing else 0
        #: Number of sums, and of tiles, in all groups.
        self.sums = groups * self.depth * self.padded
        if self.few:
            self.tiles = groups * self.depth * self.features
        else:
            self.tiles = groups * -(-self.depth // _BLOCK) * (self.padded // width)


def _rows_each(context: Context, sizes: _WeightGradientSizes, rows: int) -> int:
    """Return the number of rows of pixels in each part."""
    items = context.profile.compute_units * 4
    if not context.profile.runs_items_serially:
        items = -(-items * 256 // sizes.tiles)
    return share(rows, smallest(items, max(_PARTS // sizes.sums, 1)))[1]


def _launch(
    kernels: Kernels,
    context: Context,
    sizes: _WeightGradientSizes,
    rows: int,
    rows_each: int,
    fresh: bool,
    args: Sequence[Any],
) -> None:
    parts, tiles = -(-rows // rows_each), sizes.tiles
    near = max(_NEAR // (sizes.plane // sizes.lines * (sizes.groups * (sizes.channels + sizes.padded))), 1)
    numbers = [sizes.depth, sizes.groups, sizes.features, sizes.padded, rows, rows_each, near]
    if context.profile.runs_items_serially:
        kernel = kernels["weights_few" if sizes.few else "weights_blocks"]
        items, chunk = share(tiles, -(-context.profile.compute_units * 4 // parts))
        kernel.call((items, parts), (1, 1), *numbers, chunk, int(fresh), *args)
    else:
        kernels["weights_few"].scall((tiles, parts), *numbers, 1, int(fresh), *args)

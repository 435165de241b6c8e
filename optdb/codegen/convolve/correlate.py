"""Products of filters with packed images: results of convolutions, and gradients for images.

On CPUs, a work item keeps a block of sums in registers, for several filters and several vectors of neighbouring
outputs. GPUs compute tiles, see :mod:`optdb.codegen.convolve.tiles`. If a group of channels has few filters, as in a
depthwise convolution, a second kernel processes filters one by one, with more outputs at a time.

No im2col matrix is written: the rows of the image matrix overlap in memory, see :mod:`optdb.codegen.convolve.plan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optdb.codegen.convolve.packing import (
    Kernels,
    convolution_kernels,
    images_at_once,
    laid_out,
    pack_filters,
    some_of,
    tables_of,
    width_of,
)
from optdb.codegen.convolve.plan import ConvolutionPlan
from optdb.codegen.convolve.tile_kernels import kernels_by_tiles, own_tiles
from optdb.codegen.convolve.tiles import FilterGroups, correlate_by_tiles, suits
from optdb.codegen.gemm.problem import Precision
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import is_contiguous, share, size_of
from optdb.codegen.scratch import scratch
from optdb.codegen.source import filled, functions, work_dtype
from optdb.runtime.arrays import Array
from optdb.runtime.sizes import largest

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Size of a CPU work item's block: number of filters, and of vectors of outputs.
_BLOCKS = {"correlate": (8, 2), "correlate_few": (1, 8)}
#: A CPU processes up to this many filters one by one.
_FEW = 3
#: Number of image elements that a CPU work item reads before it proceeds to the next filters.
_NEAR = 32768


def correlate_kernels(dtype: str, context: Context, precision: Precision = "highest") -> list[Kernel]:
    """Return the kernels that `correlate` launches."""
    code = functions("convolve/correlate.cl")
    if context.profile.runs_items_serially:
        text = "".join(
            filled(code["CORRELATE"], CORRELATE=name, ROWS=rows, VECTORS=vectors)
            for name, (rows, vectors) in _BLOCKS.items()
        )
        return convolution_kernels(dtype, context, text, ["pack_images", "pack_filters"])
    few = convolution_kernels(dtype, context, code["correlate_few"], ["pack_images", "pack_filters"])
    tiles = own_tiles("CORRELATE", context, dtype, precision)
    return [*few, *kernels_by_tiles("CORRELATE", dtype, tiles, context.options.instructions)]


def lanes(dtype: str, context: Context) -> int:
    """Return the vector width of plans for `correlate`."""
    return width_of(context, dtype) if context.profile.needs_explicit_vectors else 1


def correlate(
    kernels: Kernels,
    context: Context,
    plan: ConvolutionPlan,
    images: Array,
    filters: Array,
    shape: FilterGroups,
    out: Array,
    precision: Precision = "highest",
) -> None:
    """Compute products of filters and images with the kernels of `correlate_kernels`.

    Images have the shape (images, channels, two or three axes) and any strides; filters and the result, `out`, are
    contiguous. No array is empty. Elements of `out` that no product of the plan writes are unchanged.
    """
    layout, products = plan.layout, plan.products
    groups, rows, channels, strides = shape
    serial = context.profile.runs_items_serially
    if not serial and suits(plan, channels, rows, size_of(out.shape[2:])):
        correlate_by_tiles(kernels, context, plan, images, filters, shape, out, precision=precision)
        return
    work = work_dtype(out.dtype)
    name = "correlate" if serial and rows > _FEW else "correlate_few"
    block = _BLOCKS[name][0]
    blocks = -(-rows // block)
    shifts, of_products = tables_of(context, plan, channels)
    in_place = _needs_no_packing(images, plan, work)
    image = images.shape[1] * layout.channel
    at_once = images.shape[0] if in_place else images_at_once(context, image, work, images.shape[0])
    width = lanes(out.dtype.name, context)
    near = max(_NEAR // (width * channels), 1)
    steps = [image, layout.channel * channels, size_of(out.shape[2:])]
    sizes = [groups * blocks * block * channels * len(product.taps) for product in products]
    with scratch(context, work, 1 if in_place else at_once * image + width, *sizes) as (y, *packed):
        for product, (taps, *_), w in zip(products, of_products, packed):
            whole = (groups, rows, channels, len(product.taps))
            pack_filters(kernels, context, taps, filters, w, whole, strides, block)
        for first, count, x in laid_out(kernels, context, layout, shifts, images, at_once, None if in_place else y):
            z = some_of(out, first, count)
            for product, (_, *product_tables), w in zip(products, of_products, packed):
                sizes = [channels * len(product.taps), rows, blocks, count, groups, len(product.starts)]
                _launch(kernels, name, context, sizes, steps, [x, w, *product_tables, z], near)


def _needs_no_packing(images: Array, plan: ConvolutionPlan, work: str) -> bool:
    return (
        images.dtype.name == work
        and plan.layout.is_unpacked
        and is_contiguous(images)
        and all(product.inside(plan.layout) for product in plan.products)
    )


def _launch(
    kernels: Kernels,
    name: str,
    context: Context,
    sizes: Sequence[int],
    steps: Sequence[int],
    arrays: Sequence[Array],
    near: int,
) -> None:
    """Launch one product; a CPU work item processes at most `near` vectors before the next filters."""
    _, rows, blocks, images, groups, vectors = sizes
    columns = images * vectors
    if not context.profile.runs_items_serially:
        kernels[name].scall((columns, groups * rows), *sizes, 1, 1, *steps, *arrays)
        return
    target_items = context.profile.compute_units * 8
    parts = largest(-(-target_items // groups), -(-columns // near))
    v_items, v_chunk = share(columns, parts, multiple=_BLOCKS[name][1])
    b_items, b_chunk = share(blocks, -(-target_items // (groups * v_items)))
    kernels[name].call((v_items, b_items, groups), (1, 1, 1), *sizes, v_chunk, b_chunk, *steps, *arrays)

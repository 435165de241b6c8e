"""Products of filters with images that are laid out for them: results, and gradients for images.

A processor's work item computes blocks of some filters by some vectors of neighbouring outputs
in registers; a group of a graphics card computes a tile by way of local memory. Where a group
of channels has few filters, as in a depthwise convolution, a second kernel takes them one by
one, and more outputs at a time.

The rows of the matrix of images overlap in memory, see :mod:`optdb.codegen.convolve.plan`:
nothing is gathered, and no matrix written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optdb.codegen.convolve import correlate_code as code
from optdb.codegen.convolve.packing import pack_filters, pack_images, width_of, with_packing
from optdb.codegen.convolve.plan import ConvolutionPlan
from optdb.codegen.convolve.workspace import images_at_once, share, workspace
from optdb.codegen.fp16 import work_dtype
from optdb.codegen.kernels import ARRAY, SIZE, CompiledKernel, Kernel
from optdb.codegen.layout import is_contiguous, size_of, view
from optdb.runtime.arrays import Array
from optdb.runtime.sizes import largest, smallest, starts

if TYPE_CHECKING:
    from optdb.runtime.context import Context

Kernels = Mapping[str, CompiledKernel]

#: Filters by vectors (of outputs) that an item of a processor computes at a time.
_BLOCKS = {"correlate": (8, 2), "correlate_few": (1, 8)}
#: Filters by outputs that a group of a graphics card computes at a time, and the products it sums up at a time.
_TILE, _STEP = 64, 16
#: Up to so many filters, those are taken one by one.
_FEW = 3
#: Elements of images that an item of a processor goes over before it takes the next filters.
_NEAR = 32768


class FilterGroups(NamedTuple):
    """What is multiplied with what: the filters as matrices, one for each group of channels.

    Parameters
    ----------
    groups : int
        How many there are.
    rows : int
        Channels of the result, of each group.
    channels : int
        Channels that are summed over, of each group.
    strides : tuple of int
        From one group, row and channel to the next, in elements of the filters.
    """

    groups: int
    rows: int
    channels: int
    strides: tuple[int, int, int]


class _CorrelationSizes(NamedTuple):
    """The numbers that the kernels take, but for those of a processor's chunks."""

    depth: int
    rows: int
    blocks: int
    images: int
    groups: int
    vectors: int
    x_image: int
    x_group: int
    plane: int


def correlate_kernels(dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels that `correlate` takes."""
    words = {"params": code.PARAMS, "takes": code.TAKES}
    if context.profile.runs_items_serially:
        blocks = [{"name": name, "rows": rows, "vectors": vectors} for name, (rows, vectors) in _BLOCKS.items()]
        text = "".join(code.ON_CPU.format(**block, **words) for block in blocks)
    else:
        text = code.ON_GPU.format(tile=_TILE, step=_STEP, **words)
    own = {name: [*[SIZE] * 11, *[ARRAY] * 7] for name in _BLOCKS}
    return with_packing(dtype, context, text, own, ["pack_images", "pack_filters"])


def lanes(dtype: str, context: Context) -> int:
    """Return the lanes of the vectors that plans for `correlate` are made of."""
    return width_of(context, dtype) if context.profile.needs_explicit_vectors else 1


def correlate(
    kernels: Kernels,
    context: Context,
    plan: ConvolutionPlan,
    images: Array,
    filters: Array,
    shape: FilterGroups,
    out: Array,
) -> None:
    """Compute products of filters and images.

    Parameters
    ----------
    kernels : mapping
        Those of `correlate_kernels`, compiled.
    context : Context
        Where they run.
    plan : ConvolutionPlan
        How images are laid out, and the products.
    images : Array
        Images by channels by two or three axes, of any strides; not empty.
    filters : Array
        Without gaps; not empty.
    shape : FilterGroups
        What is multiplied.
    out : Array
        For the result, without gaps. What no product writes stays as it is.
    """
    layout, products = plan.layout, plan.products
    work = work_dtype(out.dtype)
    few = shape.rows <= _FEW
    name = "correlate_few" if few else "correlate"
    block = 1 if few else _BLOCKS[name][0] if context.profile.runs_items_serially else _TILE
    blocks = -(-shape.rows // block)
    shifts, tables = workspace(context).tables(context, (plan, shape.channels), lambda: _tables(plan, shape.channels))
    in_place = _fits_as_it_is(images, plan, work)
    image = images.shape[1] * layout.channel
    at_once = images.shape[0] if in_place else images_at_once(context, image, work, images.shape[0])
    width = lanes(out.dtype.name, context)
    sizes = [shape.groups * blocks * block * shape.channels * len(product.taps) for product in products]
    laid_out, *packed = workspace(context).arrays(context, work, 1 if in_place else at_once * image + width, *sizes)
    for product, (taps, *_), y in zip(products, tables, packed):
        whole = (shape.groups, shape.rows, shape.channels, len(product.taps))
        pack_filters(kernels, context, taps, filters, y, whole, shape.strides, block)
    for first in starts(images.shape[0], at_once):
        count = smallest(at_once, images.shape[0] - first)
        x = images
        if not in_place:
            some = view(images, (count, *images.shape[1:]), images.strides, first * images.strides[0])
            pack_images(kernels, context, layout, shifts, some, laid_out)
            x = laid_out
        z = view(out, (count, *out.shape[1:]), out.strides, first * out.strides[0])
        for product, (_, *own), w in zip(products, tables, packed):
            sizes = _CorrelationSizes(
                depth=shape.channels * len(product.taps),
                rows=shape.rows,
                blocks=blocks,
                images=count,
                groups=shape.groups,
                vectors=len(product.starts),
                x_image=image,
                x_group=layout.channel * shape.channels,
                plane=size_of(out.shape[2:]),
            )
            near = max(_NEAR // (width * shape.channels), 1)
            _launch(kernels, name, context, sizes, [x, w, *own, z], near)


def _tables(plan: ConvolutionPlan, channels: int) -> list:
    """Return what the kernels look up: the shifts of the layout, and five tables for each product."""
    per_channel = np.arange(channels, dtype=np.int64)[:, None] * plan.layout.channel
    of_products = [
        [
            product.taps.astype(np.int64),
            (per_channel + product.offsets).ravel(),
            product.starts,
            product.runs,
            product.places.ravel(),
        ]
        for product in plan.products
    ]
    return [np.concatenate(plan.layout.shifts).astype(np.int64), of_products]


def _fits_as_it_is(images: Array, plan: ConvolutionPlan, work: str) -> bool:
    return (
        images.dtype.name == work
        and plan.layout.as_it_is
        and is_contiguous(images)
        and all(product.inside(plan.layout) for product in plan.products)
    )


def _launch(
    kernels: Kernels, name: str, context: Context, sizes: _CorrelationSizes, arrays: Sequence[Array], near: int
) -> None:
    """Launch one product; a processor's item goes over `near` vectors, or fewer, before it takes the next filters."""
    rows, blocks, images, groups, vectors = sizes[1:6]
    if not context.profile.runs_items_serially:
        args = [*sizes[:6], 1, 1, *sizes[6:], *arrays]
        if name == "correlate":
            kernels[name].call((-(-images * vectors // _TILE) * 16, blocks * 16, groups), (16, 16, 1), *args)
        else:
            kernels[name].scall((images * vectors, groups * rows), *args)
        return
    wanted = context.profile.compute_units * 8
    parts = largest(-(-wanted // groups), -(-images * vectors // near))
    v_items, v_chunk = share(images * vectors, parts, multiple=_BLOCKS[name][1])
    b_items, b_chunk = share(blocks, -(-wanted // (groups * v_items)))
    args = [*sizes[:6], v_chunk, b_chunk, *sizes[6:], *arrays]
    kernels[name].call((v_items, b_items, groups), (1, 1, 1), *args)

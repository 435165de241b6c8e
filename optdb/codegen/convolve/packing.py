"""Kernels that pack the operands of convolutions: padded images, filters, and features.

The kernels read arrays of the op's dtype, and write arrays of the dtype used for computation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from optdb.codegen.convolve.plan import ConvolutionPlan
from optdb.codegen.gemm.problem import Precision
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import launch_chunks, view
from optdb.codegen.operation import Kernels
from optdb.codegen.scalars.types import C_TYPES
from optdb.codegen.scratch import tables
from optdb.codegen.source import functions, load_w, typed
from optdb.runtime.arrays import Array
from optdb.runtime.sizes import smallest, starts

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Maximum size in bytes of the images packed at a time, unless a single image is larger.
LARGEST = 64 * 2**20
#: Maximum number of work groups in the second dimension of a GPU launch; kernels loop over the rest.
_MOST_GROUPS = 65535

_PACKING = functions("convolve/packing.cl")


@dataclass(frozen=True)
class ConvolutionCall:
    """The parameters that all launches of one call share."""

    kernels: Kernels
    context: Context
    #: Precision of products with shared filters.
    precision: Precision = "highest"


class FilterGroups(NamedTuple):
    """The filters of a convolution, as one matrix for each group of channels."""

    array: Array
    groups: int
    #: Number of result channels in each group.
    rows: int
    #: Number of image channels that each group sums over.
    channels: int
    #: Distance, in elements, between neighbouring groups, rows and channels of the array.
    strides: tuple[int, int, int]


def width_of(context: Context, dtype: str) -> int:
    """Return the vector width of CPU kernels, in elements."""
    wide = context.profile.float_vector_width >= 16
    return (64 if wide else 32) // (8 if dtype == "float64" else 4)


def convolution_kernels(dtype: str, context: Context, code: str, packing: Sequence[str]) -> list[Kernel]:
    """Return the kernels in `code` for arrays of a dtype, and the packing kernels named in `packing`."""
    half, width = load_w(dtype) != "", width_of(context, dtype)
    words = {
        "ON_CPU": int(context.profile.runs_items_serially),
        "WIDTH": width,
        "VECTOR": f"{C_TYPES[dtype]}{width}",
        "VLOAD": f"vload{width}",
        "VSTORE": f"vstore{width}",
        "VLOAD_T": "load_halves" if half else f"vload{width}",
        "VSTORE_T": "store_halves" if half else f"vstore{width}",
    }
    used = [*(["load_halves", "store_halves"] if half else []), *packing]
    return Kernel.all_of(typed("".join([*(_PACKING[name] for name in used), code]), dtype, **words))


def tables_of(context: Context, plan: ConvolutionPlan, channels: int) -> Sequence[Any]:
    """Return the int64 lookup tables of each product, for kernels that read `channels` channels of each image.

    The tables contain the taps, the offsets for each channel and tap, and the starts, runs and targets (see
    `TapProduct`).
    """

    def make() -> list[Any]:
        per_channel = np.arange(channels, dtype=np.int64)[:, None] * plan.layout.channel
        return [
            [
                product.taps.astype(np.int64),
                (per_channel + product.offsets).ravel(),
                product.starts,
                product.runs,
                product.targets.ravel(),
            ]
            for product in plan.products
        ]

    return tables(context, (plan, channels), make)


def images_at_once(context: Context, elements: int, dtype: str, images: int) -> int:
    """Return how many images are packed at a time, if there are `images` images of `elements` elements each."""
    largest_memory = min(LARGEST, context.profile.max_allocation_bytes // 4)
    most = max(largest_memory // max(elements * np.dtype(dtype).itemsize, 1), 1)
    return images if images <= most else most


class Images:
    """The images of one call: they are read in place, or packed in batches of `at_once` images.

    Images have the shape (images, channels, two or three axes) and any strides.
    """

    def __init__(
        self, call: ConvolutionCall, plan: ConvolutionPlan, images: Array, at_once: int, in_place: bool
    ) -> None:
        self._call, self._plan, self._images, self._in_place = call, plan, images, in_place
        self.at_once = at_once
        #: Number of scratch elements for packed images.
        self.memory = 1 if in_place else at_once * images.shape[1] * plan.layout.channel

    def batches(self, y: Array) -> Iterator[tuple[int, int, Array]]:
        """Yield each batch: its first image's index, its number of images, and its images (in `y` if packed)."""
        images, layout = self._images, self._plan.layout
        for first in starts(images.shape[0], self.at_once):
            x = some_of(images, first, smallest(self.at_once, images.shape[0] - first))
            if not self._in_place:
                (shifts,) = tables(self._call.context, layout, lambda: [np.concatenate(layout.shifts).astype(np.int64)])
                steps = [step // x.dtype.itemsize for step in x.strides]
                if x.ndim == 4:
                    steps.insert(2, 0)
                lines = x.shape[0] * x.shape[1] * layout.channel // layout.extents[2]
                sizes = [*layout.pieces, *layout.extents, *layout.lengths, *layout.steps]
                args = [x.shape[1], *sizes, shifts, x, *steps, y]
                _launch_lines(self._call, "pack_images", lines, layout.extents[2], args)
            yield first, x.shape[0], x if self._in_place else y


def some_of(array: Array, first: int, count: int) -> Array:
    """Return `count` items along the first axis of an array, starting at `first`."""
    return view(array, (count, *array.shape[1:]), array.strides, first * array.strides[0])


def pack_filters(call: ConvolutionCall, taps: Array, filters: FilterGroups, y: Array, block: int) -> None:
    """Pack contiguous filters, or some of their taps, in blocks of `block` rows.

    `taps` contains the index of each tap in a filter's channel. The result has the shape (groups, blocks, channels,
    taps, rows of a block).
    """
    x, groups, rows, channels, strides = filters
    blocks = -(-rows // block)
    args = [block, rows, blocks, channels, taps.size, *strides, taps, x, y]
    _launch_lines(call, "pack_filters", groups * blocks * channels, block, args)


def pack_features(call: ConvolutionCall, x: Array, y: Array, shape: tuple[int, int, int, int], padded: int) -> None:
    """For CPUs, transpose contiguous images so that the channels of a pixel are contiguous.

    `shape` is (images, groups, channels of a group, pixels); the result has the shape (images, pixels, groups,
    `padded`).
    """
    images, groups, features, pixels = shape
    lines = images * -(-pixels // width_of(call.context, x.dtype.name))
    args = [pixels, groups, features, padded, x, y]
    launch_chunks(call.kernels["pack_features"], call.context, lines, *args, least=1)


def _launch_lines(call: ConvolutionCall, name: str, lines: int, length: int, args: Sequence[Any]) -> None:
    if call.context.profile.runs_items_serially:
        launch_chunks(call.kernels[name], call.context, lines, *args, least=1)
    else:
        call.kernels[name].scall((length, smallest(lines, _MOST_GROUPS)), lines, 1, *args)

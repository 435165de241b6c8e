"""Products of images with gradients of results: gradients for filters.

Each element of a filter is a sum over all pixels of all images. The pixels are shared out among
work items, and each of these adds up its own part of all sums; a second kernel adds the parts
up, in their order, so that results do not vary.

A processor multiplies one pixel of some channels and taps with a vector of features at a time:
the features of a pixel are brought together for that. A graphics card computes a tile of
channels and taps by features by way of local memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optdb.codegen.convolve import weights_code as code
from optdb.codegen.convolve.geometry import Axis
from optdb.codegen.convolve.packing import pack_features, pack_images, width_of, with_packing
from optdb.codegen.convolve.plan import image_layout, image_tables
from optdb.codegen.convolve.workspace import images_at_once, share, workspace
from optdb.codegen.fp16 import work_dtype
from optdb.codegen.kernels import ARRAY, SIZE, CompiledKernel, Kernel
from optdb.codegen.layout import is_contiguous, size_of, view
from optdb.runtime.arrays import Array
from optdb.runtime.sizes import smallest, starts

if TYPE_CHECKING:
    from optdb.runtime.context import Context

Kernels = Mapping[str, CompiledKernel]

#: Channels and taps that an item of a processor multiplies with a vector of features.
_BLOCK = 8
#: Channels and taps, and features, of a graphics card's tile, and the pixels it sums up at a time.
_TILE, _STEP = 64, 16
#: Up to so many features, those are taken one by one.
_FEW = 3
#: Elements of images and features that an item goes over before it takes the next tile.
_NEAR = 65536
#: Sides of the squares in which parts are added up and turned around.
_SQUARES = {"cpu": 16, "gpu": 1}
#: Elements that all parts of the sums may take, but for the parts of one item for each unit.
_PARTS = 2**22


def weights_kernels(dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels that `weights` takes."""
    on_cpu = context.profile.runs_items_serially
    params = [*[SIZE] * 16, *[ARRAY] * 5]
    packed, plain = (
        {"params": code.PARAMS.format(features=features), "takes": code.TAKES.format(features=features)}
        for features in ("W" if on_cpu else "T", "T")
    )
    texts = [
        (code.ON_CPU if on_cpu else code.ON_GPU).format(block=_BLOCK, tile=_TILE, step=_STEP, **packed),
        code.FEW_FEATURES.format(**plain),
        code.ADD_UP.format(square=_SQUARES[context.profile.device_kind]),
    ]
    own = {"weights": params, "weights_few": params, "add_up": [*[SIZE] * 7, ARRAY, ARRAY]}
    packing = ["pack_images", "pack_features"] if on_cpu else ["pack_images"]
    return with_packing(dtype, context, "".join(texts), own, packing)


def weights(
    kernels: Kernels, context: Context, axes: Sequence[Axis], flip: bool, groups: int, x: Array, t: Array, out: Array
) -> None:
    """Compute the gradient for filters.

    Parameters
    ----------
    kernels : mapping
        Those of `weights_kernels`, compiled.
    context : Context
        Where they run.
    axes : sequence of Axis
        Of the convolution.
    flip : bool
        Whether it turns filters around.
    groups : int
        Of channels.
    x : Array
        The images, of any strides; not empty.
    t : Array
        The gradient of the result, without gaps; not empty.
    out : Array
        For the result, without gaps; not empty.
    """
    sizes = _WeightGradientSizes.of(context, axes, groups, x, t)
    layout = image_layout(axes)
    work = work_dtype(out.dtype)
    in_place = x.dtype.name == work and layout.as_it_is and is_contiguous(x)
    image = x.shape[1] * layout.channel
    at_once = images_at_once(context, max(image, sizes.image), work, x.shape[0])
    rows_each = _rows_each(context, sizes, at_once * sizes.lines)
    most_parts = -(-at_once * sizes.lines // rows_each)
    shifts, *tables = workspace(context).tables(
        context, ("images", tuple(axes), flip, sizes.channels), lambda: image_tables(axes, layout, flip, sizes.channels)
    )
    packed_x, packed_t, parts = workspace(context).arrays(
        context, work, 1 if in_place else at_once * image, max(at_once * sizes.image, 1), most_parts * sizes.sums
    )
    for first in starts(x.shape[0], at_once):
        count = smallest(at_once, x.shape[0] - first)
        some_x, some_t = (view(a, (count, *a.shape[1:]), a.strides, first * a.strides[0]) for a in (x, t))
        if not in_place:
            pack_images(kernels, context, layout, shifts, some_x, packed_x)
            some_x = packed_x
        if sizes.packing:
            whole = (count, groups, sizes.features, sizes.plane)
            pack_features(kernels, context, some_t, packed_t, whole, sizes.padded)
            some_t = packed_t
        numbers = [*(axis.out for axis in axes), *layout.extents[1:], image, layout.channel * sizes.channels]
        arrays = [some_x, some_t, *tables, parts]
        _launch(kernels, context, sizes, count * sizes.lines, rows_each, first == 0, [*numbers, *arrays])
    _add_up(kernels, context, sizes, most_parts, parts, out)


@dataclass(frozen=True)
class _WeightGradientSizes:
    """What is multiplied, and in which way.

    Parameters
    ----------
    groups, channels, features : int
        Groups, and of each its channels and features.
    depth : int
        Channels by taps.
    padded : int
        To how many features a group is filled up.
    lines, plane : int
        Rows of pixels, and pixels, of an image of the result.
    width : int
        Lanes of a processor's vectors.
    packing : bool
        Whether the features of a pixel are brought together.
    few : bool
        Whether they are taken one by one.
    """

    groups: int
    channels: int
    features: int
    depth: int
    padded: int
    lines: int
    plane: int
    width: int
    packing: bool
    few: bool

    @classmethod
    def of(cls, context: Context, axes: Sequence[Axis], groups: int, x: Array, t: Array) -> _WeightGradientSizes:
        """Return the sizes for images `x` and gradients of results `t`."""
        channels, features = x.shape[1] // groups, t.shape[1] // groups
        few = features <= _FEW
        packing = context.profile.runs_items_serially and not few
        width = width_of(context, x.dtype.name)
        return cls(
            groups=groups,
            channels=channels,
            features=features,
            depth=channels * size_of([axis.taps for axis in axes]),
            padded=-(-features // width) * width if packing else features,
            lines=axes[0].out * axes[1].out,
            plane=size_of(t.shape[2:]),
            width=width,
            packing=packing,
            few=few,
        )

    @property
    def image(self) -> int:
        """Elements of an image's features, brought together."""
        return self.plane * self.groups * self.padded if self.packing else 0

    @property
    def sums(self) -> int:
        """How many sums there are."""
        return self.groups * self.depth * self.padded

    @property
    def tiles(self) -> int:
        """How many tiles there are, in all groups."""
        if self.few:
            return self.groups * self.depth * self.features
        if self.packing:
            return self.groups * -(-self.depth // _BLOCK) * (self.padded // self.width)
        return self.groups * -(-self.depth // _TILE) * -(-self.features // _TILE)


def _rows_each(context: Context, sizes: _WeightGradientSizes, rows: int) -> int:
    """Return how many rows of pixels are added up by one item, or one group of them."""
    items = context.profile.compute_units * 4
    if not context.profile.runs_items_serially:
        items = -(-items * (256 if sizes.few else 1) // sizes.tiles)
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
    kernel = kernels["weights_few" if sizes.few else "weights"]
    parts, tiles = -(-rows // rows_each), sizes.tiles
    near = max(_NEAR // (sizes.plane // sizes.lines * (sizes.groups * (sizes.channels + sizes.padded))), 1)
    numbers = [sizes.depth, sizes.groups, sizes.features, sizes.padded, rows, rows_each, near]
    if context.profile.runs_items_serially:
        items, chunk = share(tiles, -(-context.profile.compute_units * 4 // parts))
        kernel.call((items, parts), (1, 1), *numbers, chunk, int(fresh), *args)
    elif sizes.few:
        kernel.scall((tiles, parts), *numbers, 1, int(fresh), *args)
    else:
        whole = (tiles // sizes.groups * 16, sizes.groups * 16, parts)
        kernel.call(whole, (16, 16, 1), *numbers, 1, int(fresh), *args)


def _add_up(
    kernels: Kernels, context: Context, sizes: _WeightGradientSizes, count: int, parts: Array, out: Array
) -> None:
    square = _SQUARES[context.profile.device_kind]
    lines = sizes.groups * -(-sizes.depth // square) * -(-sizes.features // square)
    args = [count, sizes.depth, sizes.groups, sizes.features, sizes.padded, parts, out]
    if context.profile.runs_items_serially:
        items, chunk = share(lines, context.profile.compute_units * 4)
        kernels["add_up"].call(items, 1, lines, chunk, *args)
    else:
        kernels["add_up"].scall(lines, lines, 1, *args)

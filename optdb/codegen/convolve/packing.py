"""Kernels that lay out what convolutions multiply: images with zeros around them, filters, features.

They read arrays of the op's dtype, and write the dtype that is computed in. What they read and
write, line by line, is the same on all devices; a processor's work item takes many lines, a
graphics card's one element of a line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from optdb.codegen.convolve import packing_code as code
from optdb.codegen.convolve.plan import ChannelLayout
from optdb.codegen.convolve.workspace import share
from optdb.codegen.fp16 import load_w, work_dtype, write_w
from optdb.codegen.kernels import ARRAY, SIZE, SSIZE, CompiledKernel, Kernel, ctype
from optdb.codegen.scalars.types import C_TYPES
from optdb.runtime.arrays import Array
from optdb.runtime.sizes import smallest

if TYPE_CHECKING:
    from optdb.runtime.context import Context

Kernels = Mapping[str, CompiledKernel]

#: What a graphics card launches in one dimension at most; the kernels go on from there.
_MOST_GROUPS = 65535


#: For each kernel its OpenCL C, and what it takes.
_PACKING = {
    "pack_images": (code.PACK_IMAGES, [*[SIZE] * 9, *[SSIZE] * 6, ARRAY, ARRAY, *[SSIZE] * 5, ARRAY]),
    "pack_filters": (code.PACK_FILTERS, [*[SIZE] * 7, *[SSIZE] * 3, ARRAY, ARRAY, ARRAY]),
    "pack_features": (code.PACK_FEATURES, [*[SIZE] * 6, ARRAY, ARRAY]),
}


def width_of(context: Context, dtype: str) -> int:
    """Return how many lanes the vectors have that a processor computes with."""
    wide = context.profile.float_vector_width >= 16
    return (64 if wide else 32) // (8 if dtype == "float64" else 4)


def _definitions(dtype: str, context: Context) -> str:
    """Return what the kernels' codes begin with."""
    width = width_of(context, dtype)
    work = work_dtype(dtype)
    return code.DEFINITIONS.format(
        stored=ctype(dtype),
        work=ctype(work),
        load=load_w(dtype),
        store=write_w(dtype),
        on_cpu=int(context.profile.runs_items_serially),
        width=width,
        vector=f"{C_TYPES[work]}{width}",
        vectors=code.HALF_VECTORS if load_w(dtype) else code.PLAIN_VECTORS,
    )


def with_packing(
    dtype: str, context: Context, text: str, params: Mapping[str, Sequence], packing: Sequence[str]
) -> list[Kernel]:
    """Return kernels, and those of this module that lay out what they read.

    Parameters
    ----------
    dtype : str
        Of the op's arrays.
    context : Context
        Where they are to run.
    text : str
        Their OpenCL C, in the words of this module's definitions.
    params : mapping
        For each kernel's name, what it takes.
    packing : sequence of {'pack_images', 'pack_filters', 'pack_features'}
        Which of this module's.
    """
    text = "".join([_definitions(dtype, context), *(_PACKING[name][0] for name in packing), text])
    takes = {name: _PACKING[name][1] for name in packing}
    return [Kernel(text, name, given, Kernel.get_flags(dtype)) for name, given in {**takes, **params}.items()]


def pack_images(kernels: Kernels, context: Context, layout: ChannelLayout, shifts: Array, x: Array, y: Array) -> None:
    """Lay out images.

    Parameters
    ----------
    kernels : mapping
        Those of `with_packing`, compiled.
    context : Context
        Where they run.
    layout : ChannelLayout
        Of one channel.
    shifts : Array
        Those of the layout, one axis after the other.
    x : Array
        Images by channels by two or three axes, of any strides.
    y : Array
        For the result, as long as that is at least.
    """
    item = x.dtype.itemsize
    steps = [step // item for step in x.strides]
    if x.ndim == 4:
        steps.insert(2, 0)
    lines = x.shape[0] * x.shape[1] * layout.channel // layout.extents[2]
    args = [x.shape[1], *layout.pieces, *layout.extents, *layout.lengths, *layout.steps, shifts, x, *steps, y]
    _launch_lines(kernels["pack_images"], context, lines, layout.extents[2], args)


def pack_filters(
    kernels: Kernels,
    context: Context,
    taps: Array,
    x: Array,
    y: Array,
    shape: tuple[int, int, int, int],
    strides: tuple[int, int, int],
    block: int,
) -> None:
    """Lay out filters, or some of their taps, in blocks.

    Parameters
    ----------
    kernels, context
        As for `pack_images`.
    taps : Array
        Where each tap lies in a channel of a filter.
    x : Array
        The filters, without gaps.
    y : Array
        For the result: groups by blocks by channels by taps by rows of a block.
    shape : tuple of int
        Groups, rows, channels and taps.
    strides : tuple of int
        From one group, row and channel to the next, in elements of `x`.
    block : int
        Rows of a block.
    """
    groups, rows, channels, count = shape
    blocks = -(-rows // block)
    args = [block, rows, blocks, channels, count, *strides, taps, x, y]
    _launch_lines(kernels["pack_filters"], context, groups * blocks * channels, block, args)


def pack_features(
    kernels: Kernels, context: Context, x: Array, y: Array, shape: tuple[int, int, int, int], padded: int
) -> None:
    """Lay out images pixel by pixel, each with all its channels; for processors.

    Parameters
    ----------
    kernels, context
        As for `pack_images`.
    x : Array
        The images, without gaps.
    y : Array
        For the result: images by pixels by groups by `padded`.
    shape : tuple of int
        Images, groups, channels of a group, pixels.
    padded : int
        To how many channels a group is filled up.
    """
    images, groups, features, pixels = shape
    lines = images * -(-pixels // width_of(context, x.dtype.name))
    items, chunk = share(lines, context.profile.compute_units * 4)
    kernels["pack_features"].call(items, 1, lines, chunk, pixels, groups, features, padded, x, y)


def _launch_lines(kernel: CompiledKernel, context: Context, lines: int, length: int, args: list) -> None:
    if context.profile.runs_items_serially:
        items, chunk = share(lines, context.profile.compute_units * 4)
        kernel.call(items, 1, lines, chunk, *args)
    else:
        kernel.scall((length, smallest(lines, _MOST_GROUPS)), lines, 1, *args)

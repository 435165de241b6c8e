"""Unshared convolutions, which have separate filters for each output, and their gradients.

No operand is reused, so nothing could stay in registers: each work item computes some elements
of the result, one by one. Results and gradients for filters read packed images with zero
padding; the gradient for images finds, for each tap, the output that it contributed to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optdb.codegen.convolve.geometry import Axis
from optdb.codegen.convolve.packing import Kernels, convolution_kernels, laid_out, tables_of
from optdb.codegen.convolve.plan import forward
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import launch_chunks, size_of
from optdb.codegen.scratch import scratch
from optdb.codegen.source import functions, work_dtype
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Arguments of `unshared_inputs` for each axis.
_NUMBERS = ("length", "taps", "low", "step", "dilation", "out")


def unshared_kernels(dtype: str, context: Context, name: str) -> list[Kernel]:
    """Return the kernels of `unshared` for the given `name`, or those of the function `unshared_inputs`."""
    packing = [] if name == "unshared_inputs" else ["pack_images"]
    return convolution_kernels(dtype, context, functions("convolve/unshared.cl")[name], packing)


def unshared(
    kernels: Kernels,
    context: Context,
    name: str,
    axes: Sequence[Axis],
    flip: bool,
    groups: int,
    images: Array,
    other: Array,
    out: Array,
) -> None:
    """Compute a result ('unshared_forward'), or the gradient for filters ('unshared_weights').

    `other` and `out` are the filters and the result, or the gradient of the result and the gradient for filters.
    """
    plan = forward(tuple(axes), flip, 1)
    layout = plan.layout
    channels = images.shape[1] // groups
    features = other.shape[0] if name == "unshared_forward" else other.shape[1]
    shifts, [(_, offsets, pixels, *_)] = tables_of(context, plan, channels)
    image = images.shape[1] * layout.channel
    plane = size_of([axis.out for axis in axes])
    depth = channels * size_of([axis.taps for axis in axes])
    numbers = [images.shape[0], features, plane, depth, features // groups, image, channels * layout.channel]
    with scratch(context, work_dtype(out.dtype), images.shape[0] * image) as (y,):
        for _, _, x in laid_out(kernels, context, layout, shifts, images, images.shape[0], y):
            args = [*numbers, x, offsets, pixels, other, out]
            launch_chunks(kernels[name], context, features * plane, *args, least=1)


def unshared_inputs(
    kernels: Kernels,
    context: Context,
    axes: Sequence[Axis],
    flip: bool,
    groups: int,
    filters: Array,
    t: Array,
    out: Array,
) -> None:
    """Compute the gradient for images from the filters and the gradient `t` of the result; all are contiguous."""
    numbers = [groups, t.shape[1] // groups, out.shape[1] // groups, int(flip)]
    numbers += [getattr(axis, name) for axis in axes for name in _NUMBERS]
    launch_chunks(kernels["unshared_inputs"], context, size_of(out.shape), *numbers, t, filters, out, least=1)

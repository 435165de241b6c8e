"""Convolutions that have filters of their own for each output, and their gradients.

Nothing is shared that could be kept in registers, so each work item computes some elements of
the result, one after the other. Results and gradients for filters read images that are laid out
with zeros around them; the gradient for images asks for each tap which output took it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from optdb.codegen.convolve.geometry import Axis
from optdb.codegen.convolve.packing import pack_images, with_packing
from optdb.codegen.convolve.plan import image_layout, image_tables
from optdb.codegen.convolve.workspace import share, workspace
from optdb.codegen.fp16 import work_dtype
from optdb.codegen.kernels import ARRAY, SIZE, SSIZE, CompiledKernel, Kernel
from optdb.codegen.layout import size_of
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.runtime.context import Context

Kernels = Mapping[str, CompiledKernel]

_LOOP = """
    const ga_size first = get_global_id(0) * chunk, last = min(first + chunk, n);
    for (ga_size i = first; i < last; ++i) {
"""

# An output's place in the image is pixels[p]; filters lie by features, outputs, channels, taps.
_WITH_IMAGES = """
OUTLINED_KERNEL void {name}(ga_size n, ga_size chunk, ga_size images, ga_size features, ga_size plane, ga_size depth,
    ga_size in_group, ga_size x_image, ga_size x_group,
    GLOBAL_MEM W *x, ga_size x_off, GLOBAL_MEM ga_long *offsets, ga_size offsets_off,
    GLOBAL_MEM ga_long *pixels, ga_size pixels_off, GLOBAL_MEM T *a, ga_size a_off, GLOBAL_MEM T *z, ga_size z_off)
{{
    TAKE(W, x);
    TAKE(ga_long, offsets);
    TAKE(ga_long, pixels);
    TAKE(T, a);
    TAKE(T, z);
    {loop}
        const ga_size f = i / plane, p = i % plane;
        const GLOBAL_MEM W *from = x + f / in_group * x_group + pixels[p];
        {body}
    }}
}}
"""

_BODIES = {
    "unshared_forward": """
        for (ga_size image = 0; image < images; ++image) {
            W sum = 0;
            for (ga_size k = 0; k < depth; ++k)
                sum += LOAD(a[i * depth + k]) * from[image * x_image + offsets[k]];
            z[(image * features + f) * plane + p] = STORE(sum);
        }
""",
    "unshared_weights": """
        for (ga_size k = 0; k < depth; ++k) {
            W sum = 0;
            for (ga_size image = 0; image < images; ++image)
                sum += LOAD(a[(image * features + f) * plane + p]) * from[image * x_image + offsets[k]];
            z[i * depth + k] = STORE(sum);
        }
""",
}

_INPUTS = """
OUTLINED_KERNEL void unshared_inputs(ga_size n, ga_size chunk, ga_size groups, ga_size features, ga_size channels,
    ga_uint flip, {axes},
    GLOBAL_MEM T *t, ga_size t_off, GLOBAL_MEM T *w, ga_size w_off, GLOBAL_MEM T *z, ga_size z_off)
{{
    TAKE(T, t);
    TAKE(T, w);
    TAKE(T, z);
    const ga_size plane = out0 * out1 * out2, taps = taps0 * taps1 * taps2;
    {loop}
        ga_size rest = i;
        const ga_ssize y2 = rest % length2; rest /= length2;
        const ga_ssize y1 = rest % length1; rest /= length1;
        const ga_ssize y0 = rest % length0; rest /= length0;
        const ga_size channel = rest % channels; rest /= channels;
        const ga_size group = rest % groups, image = rest / groups;
        W sum = 0;
        for (ga_size tap = 0; tap < taps; ++tap) {{
            const ga_ssize u0 = y0 + low0 - (ga_ssize)(tap / taps2 / taps1) * dilation0;
            const ga_ssize u1 = y1 + low1 - (ga_ssize)(tap / taps2 % taps1) * dilation1;
            const ga_ssize u2 = y2 + low2 - (ga_ssize)(tap % taps2) * dilation2;
            if (u0 < 0 || u1 < 0 || u2 < 0 || u0 % step0 || u1 % step1 || u2 % step2)
                continue;
            if (u0 / step0 >= out0 || u1 / step1 >= out1 || u2 / step2 >= out2)
                continue;
            const ga_size p = (u0 / step0 * out1 + u1 / step1) * out2 + u2 / step2;
            const ga_size own = flip ? taps - 1 - tap : tap;
            for (ga_size f = group * features; f < (group + 1) * features; ++f)
                sum += LOAD(t[(image * groups * features + f) * plane + p])
                    * LOAD(w[((f * plane + p) * channels + channel) * taps + own]);
        }}
        z[i] = STORE(sum);
    }}
}}
"""

_NUMBERS = ("length", "taps", "low", "step", "dilation", "out")


def unshared_kernels(dtype: str, context: Context, name: str) -> list[Kernel]:
    """Return the kernels that `unshared` takes under a name, or `unshared_inputs` under its own."""
    if name == "unshared_inputs":
        axes = ", ".join(f"ga_ssize {number}{axis}" for axis in range(3) for number in _NUMBERS)
        params = [*[SIZE] * 5, "uint32", *[SSIZE] * 18, ARRAY, ARRAY, ARRAY]
        return with_packing(dtype, context, _INPUTS.format(axes=axes, loop=_LOOP), {name: params}, [])
    text = _WITH_IMAGES.format(name=name, loop=_LOOP, body=_BODIES[name])
    return with_packing(dtype, context, text, {name: [*[SIZE] * 9, *[ARRAY] * 5]}, ["pack_images"])


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
    """Compute a result, or the gradient for filters.

    Parameters
    ----------
    kernels : mapping
        Those of `unshared_kernels`, compiled.
    context : Context
        Where they run.
    name : {'unshared_forward', 'unshared_weights'}
        Which of the two.
    axes : sequence of Axis
        Of the convolution.
    flip : bool
        Whether it turns filters around.
    groups : int
        Of channels.
    images : Array
        Of any strides; not empty.
    other, out : Array
        Filters and result, or the gradient of the result and that for filters; without gaps, not empty.
    """
    layout = image_layout(axes)
    channels = images.shape[1] // groups
    features = other.shape[0] if name == "unshared_forward" else other.shape[1]
    shifts, offsets, pixels = workspace(context).tables(
        context, ("images", tuple(axes), flip, channels), lambda: image_tables(axes, layout, flip, channels)
    )
    image = images.shape[1] * layout.channel
    (packed,) = workspace(context).arrays(context, work_dtype(out.dtype), images.shape[0] * image)
    pack_images(kernels, context, layout, shifts, images, packed)
    plane = size_of([axis.out for axis in axes])
    depth = channels * size_of([axis.taps for axis in axes])
    numbers = [images.shape[0], features, plane, depth, features // groups, image, channels * layout.channel]
    _launch(kernels[name], context, features * plane, [*numbers, packed, offsets, pixels, other, out])


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
    """Compute the gradient for images, from the filters and the gradient `t` of the result; none has gaps."""
    numbers = [groups, t.shape[1] // groups, out.shape[1] // groups, int(flip)]
    numbers += [getattr(axis, name) for axis in axes for name in _NUMBERS]
    _launch(kernels["unshared_inputs"], context, size_of(out.shape), [*numbers, t, filters, out])


def _launch(kernel: CompiledKernel, context: Context, n: int, args: Sequence) -> None:
    if context.profile.runs_items_serially:
        items, chunk = share(n, context.profile.compute_units * 4)
        kernel.call(items, 1, n, chunk, *args)
    else:
        kernel.scall(n, n, 1, *args)

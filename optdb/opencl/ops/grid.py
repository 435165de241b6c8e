"""Kernels that go over the grid of elements that an advanced index names: one takes them, one changes them.

The grid has axes that are stepped through and one axis of places (see :mod:`optdb.opencl.ops.index_layout`), whose
offsets are in a table. Work items take pieces of the grid, one piece after the other, and walk them row by row, as
those of :mod:`optdb.opencl.ops.elements` do. An element that is named several times is changed by one work item, in the
order of its mentions, so results do not vary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.fp16 import load_w, write_w
from optdb.codegen.layout import collapse
from optdb.codegen.scalars.types import c_type, convert
from optdb.host import scalars
from optdb.opencl.kernels import ARRAY, SIZE, SSIZE, Kernel, ctype
from optdb.opencl.ops.elements import RAW
from optdb.opencl.ops.index_layout import Pattern
from optdb.opencl.scalars.code import scalar_code

_WALK = """
#pragma OPENCL FP_CONTRACT OFF
{helpers}
OUTLINED_KERNEL void {name}({params})
{{
{pointers}
ga_size i = get_global_id(0) * chunk;
const ga_size end = min(i + chunk, n);
while (i < end) {{
ga_size rest = i;
{outer}
const ga_size stop = min(end, i + (len{last} - at{last}));
for (; i < stop; ++i, ++at{last}) {{
{body}
}}
}}
}}
"""

_CHANGE = """
const ga_ssize p = places[at{places}]{x_steps};
const ga_ssize q = 0{y_steps};
{computed} old = {load}(x[p]);
for (ga_long m = starts[at{places}]; m < starts[at{places} + 1]; ++m) {{
    const {by_computed} by = {by_load}(y[q + order[m] * y_place]);
    {computed_sum} sum;
    {statements}
    old = {converted};
}}
x[p] = {store}(old);
"""

_SET = "x[places[at{places}]{x_steps}] = y[order[at{places}] * y_place{y_steps}];"


def taking(dtype: str, pattern: Pattern) -> Kernel:
    """Return the kernel that takes the elements of a grid from an array of any dtype, bit by bit.

    Its arguments: n, chunk, the length of each axis, x, x's step for each axis but that of places, the table of places,
    and the result, in C order.
    """
    raw = RAW[np.dtype(dtype).itemsize]
    code = _walk(
        "take",
        pattern,
        [("x", raw), ("places", "ga_long"), ("z", raw)],
        ["x"],
        f"z[i] = x[places[at{pattern.before}]{_steps('x', pattern)}];",
    )
    steps = [SSIZE] * (pattern.axes - 1)
    return Kernel(code, "take", [SIZE, SIZE, *[SIZE] * pattern.axes, ARRAY, ARRAY, ARRAY, *steps])


def setting(dtype: str, pattern: Pattern) -> Kernel:
    """Return the kernel that sets the elements of a grid, bit by bit.

    Its arguments: n, chunk, the length of each axis, x, y, the table of places, that of the mention whose value each
    place gets, y's step along mentions, and x's and y's steps for each axis but that of places.
    """
    raw = RAW[np.dtype(dtype).itemsize]
    body = _SET.format(places=pattern.before, x_steps=_steps("x", pattern), y_steps=_steps("y", pattern))
    tables = [("places", "ga_long"), ("order", "ga_long")]
    code = _walk("change", pattern, [("x", raw), ("y", raw), *tables], ["x", "y"], body, ["ga_ssize y_place"])
    return Kernel(code, "change", _change_params(pattern, arrays=4))


def incrementing(dtype: str, by: str, pattern: Pattern) -> Kernel:
    """Return the kernel that adds to the elements of a grid, in the dtype that NumPy adds in.

    Its arguments: n, chunk, the length of each axis, x, y, the table of places, that of the mentions in the order of
    the places they name, that of where each place's mentions begin in it, and the rest as for `setting`.
    """
    wide = scalars.upcast(dtype, by)
    code = scalar_code(scalars.add, [dtype, by], ["old", "by"], ["sum"])
    body = _CHANGE.format(
        places=pattern.before,
        x_steps=_steps("x", pattern),
        y_steps=_steps("y", pattern),
        computed=c_type(dtype),
        computed_sum=c_type(wide),
        by_computed=c_type(by),
        load=load_w(dtype),
        by_load=load_w(by),
        statements=code.statements,
        converted=convert("sum", wide, dtype),
        store=write_w(dtype),
    )
    tables = [("places", "ga_long"), ("order", "ga_long"), ("starts", "ga_long")]
    arrays = [("x", ctype(dtype)), ("y", ctype(by)), *tables]
    text = _walk("change", pattern, arrays, ["x", "y"], body, ["ga_ssize y_place"], code.helpers)
    return Kernel(text, "change", _change_params(pattern, arrays=5), Kernel.get_flags(*sorted(code.dtypes)))


def _change_params(pattern: Pattern, arrays: int) -> list[Any]:
    steps = [SSIZE] * (2 * (pattern.axes - 1))
    return [SIZE, SIZE, *[SIZE] * pattern.axes, *[ARRAY] * arrays, SSIZE, *steps]


def _steps(name: str, pattern: Pattern) -> str:
    """Return what the stepped axes add to the place of an element."""
    return "".join(f" + (ga_ssize)at{d} * {name}_s{d}" for d in range(pattern.axes) if d != pattern.before)


def _walk(
    name: str,
    pattern: Pattern,
    arrays: Sequence[tuple[str, str]],
    stepped: Sequence[str],
    body: str,
    numbers: Sequence[str] = (),
    helpers: str = "",
) -> str:
    axes = range(pattern.axes)
    params = ["ga_size n", "ga_size chunk", *[f"ga_size len{d}" for d in axes]]
    params += [f"GLOBAL_MEM {kind} *{array}, ga_size {array}_off" for array, kind in arrays]
    params += numbers
    params += [f"ga_ssize {array}_s{d}" for array in stepped for d in axes if d != pattern.before]
    return _WALK.format(
        name=name,
        helpers=helpers,
        params=", ".join(params),
        pointers="\n".join(
            f"{array} = (GLOBAL_MEM {kind} *)((GLOBAL_MEM char *){array} + {array}_off);" for array, kind in arrays
        ),
        outer="\n".join(f"ga_size at{d} = rest % len{d}; rest /= len{d};" for d in reversed(axes)),
        last=pattern.axes - 1,
        body=body,
    )


def stepped_axes(
    pattern: Pattern, lengths: Sequence[int], steps: Sequence[Sequence[int]], places: int
) -> tuple[list[int], list[int]]:
    """Return the lengths of a grid's axes, places among them, and the steps of the others, in as few axes as will do.

    Axes that are saved have length 1: the kernels are written for a fixed number.

    Parameters
    ----------
    pattern : Pattern
        Where the axes stand.
    lengths : sequence of int
        Of the stepped axes.
    steps : sequence of sequence of int
        For each array, those along the stepped axes.
    places : int
        The length of the axis of places.
    """
    cut = pattern.before
    front, front_steps = _padded(lengths[:cut], [own[:cut] for own in steps])
    back, back_steps = _padded(lengths[cut:], [own[cut:] for own in steps])
    flat = [step for mine, theirs in zip(front_steps, back_steps, strict=True) for step in (*mine, *theirs)]
    return [*front, places, *back], flat


def _padded(lengths: Sequence[int], steps: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    fewer, own = collapse(lengths, steps)
    missing = len(lengths) - len(fewer)
    return (1,) * missing + fewer, [(0,) * missing + tuple(some) for some in own]

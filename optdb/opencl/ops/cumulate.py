"""Sums and products of all elements so far, along an axis.

One kernel goes along the axis, element by element, as the host does: for floats, its
results are the host's to the last bit. A processor's work item takes eight rows side by
side, so that one does not wait for the other. On a graphics card that is right for many
rows; where rows are long and few, groups of work items scan them in pieces, by a tree,
after the totals of all pieces before are known. There floats are rounded elsewhere.

References
----------
The scan of a piece is Hillis and Steele's (Data parallel algorithms, 1986).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.fp16 import load_w, work_dtype, write_w
from optdb.codegen.layout import collapse, strides_of, view
from optdb.codegen.scalars.types import c_type, unsigned
from optdb.host.graph import Apply
from optdb.host.sorting import CumOp
from optdb.opencl.kernels import (
    ARRAY,
    LOCAL,
    SIZE,
    SSIZE,
    Kernel,
    Kernels,
    OpenCLKernelBase,
    Outputs,
    ctype,
    output_array,
)
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.views import contiguous, copying
from optdb.runtime.arrays import Array, empty

if TYPE_CHECKING:
    from optdb.runtime.context import Context


#: Rows that a processor's work item takes side by side.
SIDE_BY_SIDE = 8
#: Work items of a group, on a graphics card.
GROUP = 256
#: On a graphics card, rows are scanned by groups if they are as long, and fewer than so many.
LONG, MANY = 512, 2048

_COMMON = """
#pragma OPENCL FP_CONTRACT OFF
static inline {work} combine({work} a, {work} b) {{ return {combine}; }}
"""

_ROWS = """
OUTLINED_KERNEL void rows(ga_size count, ga_size n, ga_size each, {lengths},
    GLOBAL_MEM {stored} *x, ga_size x_off, {x_steps}, ga_ssize x_step,
    GLOBAL_MEM {stored} *z, ga_size z_off, {z_steps}, ga_ssize z_step)
{{
x = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)x + x_off);
z = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)z + z_off);
const ga_size stop = min((get_global_id(0) + 1) * each, count);
for (ga_size first = get_global_id(0) * each; first < stop; first += {width}) {{
    const int here = (int)min((ga_size){width}, stop - first);
    ga_ssize xp[{width}], zp[{width}];
    {work} acc[{width}];
    for (int c = 0; c < here; ++c) {{
        ga_size rest = first + c;
        xp[c] = zp[c] = 0;
        {places}
        acc[c] = {load}(x[xp[c]]);
        z[zp[c]] = {store}(acc[c]);
    }}
    if (here == {width})
        for (ga_size i = 1; i < n; ++i)
            for (int c = 0; c < {width}; ++c) {{
                xp[c] += x_step;
                zp[c] += z_step;
                const {stored} sum = {store}(combine(acc[c], {load}(x[xp[c]])));
                z[zp[c]] = sum;
                acc[c] = {load}(sum);
            }}
    else
        for (int c = 0; c < here; ++c) {{
            const GLOBAL_MEM {stored} *from = x + xp[c];
            GLOBAL_MEM {stored} *to = z + zp[c];
            {work} one = acc[c];
            for (ga_size i = 1; i < n; ++i) {{
                from += x_step;
                to += z_step;
                const {stored} sum = {store}(combine(one, {load}(*from)));
                *to = sum;
                one = {load}(sum);
            }}
        }}
}}
}}
"""

# The group of a piece of a row: what it comes to (totals, without starts), or all that comes on the way to it.
_PIECES = """
KERNEL void pieces(ga_size pieces, ga_size n, ga_size piece, ga_size writing, {lengths},
    GLOBAL_MEM {stored} *x, ga_size x_off, {x_steps}, ga_ssize x_step,
    GLOBAL_MEM {stored} *z, ga_size z_off, {z_steps}, ga_ssize z_step,
    GLOBAL_MEM {work} *totals, ga_size totals_off, LOCAL_MEM_ARG {work} *tile)
{{
x = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)x + x_off);
z = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)z + z_off);
totals = (GLOBAL_MEM {work} *)((GLOBAL_MEM char *)totals + totals_off);
const ga_size row = GID_0 / pieces, mine = GID_0 % pieces;
const ga_size begin = mine * piece, end = min(begin + piece, n);
ga_size rest = row;
ga_ssize xp[1] = {{0}}, zp[1] = {{0}};
const int c = 0;
{places}
const bool later = writing && mine > 0;
{work} carry = later ? totals[row * pieces + mine - 1] : 0;
for (ga_size at = begin; at < end; at += LDIM_0) {{
    const ga_size i = at + LID_0;
    tile[LID_0] = i < end ? {load}(x[xp[0] + (ga_ssize)i * x_step]) : ({work}){identity};
    local_barrier();
    for (ga_size reach = 1; reach < LDIM_0; reach *= 2) {{
        const {work} before = LID_0 >= reach ? tile[LID_0 - reach] : 0;
        local_barrier();
        if (LID_0 >= reach)
            tile[LID_0] = combine(before, tile[LID_0]);
        local_barrier();
    }}
    const bool carried = later || at > begin;
    if (writing && i < end)
        z[zp[0] + (ga_ssize)i * z_step] = {store}(carried ? combine(carry, tile[LID_0]) : tile[LID_0]);
    carry = carried ? combine(carry, tile[LDIM_0 - 1]) : tile[LDIM_0 - 1];
    local_barrier();
}}
if (!writing && LID_0 == 0)
    totals[row * pieces + mine] = carry;
}}
KERNEL void starts(ga_size count, ga_size pieces, GLOBAL_MEM {work} *totals, ga_size totals_off)
{{
totals = (GLOBAL_MEM {work} *)((GLOBAL_MEM char *)totals + totals_off);
const ga_size row = get_global_id(0);
if (row < count)
    for (ga_size i = row * pieces + 1; i < (row + 1) * pieces; ++i)
        totals[i] = combine(totals[i - 1], totals[i]);
}}
"""


class OpenCLCumOp(Counterpart, OpenCLKernelBase, CumOp):
    """Sums ('add') or products ('mul') of all elements so far, along an axis or of all elements."""

    host = CumOp

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x = node.inputs[0].type
        kept = 1 if self.axis is None else max(x.ndim - 1, 1)
        kernels = _kernels(x.dtype, self.mode, kept, self.get_context(node).profile.runs_items_serially)
        return kernels + (copying(x).kernels() if self.axis is None else [])

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        (x,) = inputs
        if self.axis is None:
            out = output_array(outputs[0], context, (x.size,), x.dtype)
            if not out.size:
                return
            x = contiguous(x, node.inputs[0].type, kernels, context)
            x = view(x, (x.size,), (x.dtype.itemsize,))
        else:
            out = output_array(outputs[0], context, x.shape, x.dtype)
        if out.size:
            _cumulate(kernels, context, x, out, (self.axis or 0) % x.ndim)


def _cumulate(kernels: Kernels, context: Context, x: Array, out: Array, axis: int) -> None:
    others = [d for d in range(x.ndim) if d != axis]
    lengths, places = collapse(
        [x.shape[d] for d in others], [[strides_of(a, a.shape)[d] for d in others] for a in (x, out)]
    )
    n = x.shape[axis]
    count = x.size // n
    missing = max(len(others), 1) - len(lengths)
    lengths = (1,) * missing + lengths
    arrays = []
    for a, steps in zip((x, out), places, strict=True):
        arrays += [a, *(0,) * missing, *steps, strides_of(a, a.shape)[axis]]
    if context.profile.runs_items_serially:
        each = max(SIDE_BY_SIDE, -(-count // (context.profile.compute_units * 4)))
        kernels["rows"].call(-(-count // each), 1, count, n, each, *lengths, *arrays)
    elif n < LONG or count >= MANY:
        kernels["rows"].scall(count, count, n, 1, *lengths, *arrays)
    else:
        _in_pieces(kernels, context, count, n, lengths, arrays, work_dtype(x.dtype))


def _in_pieces(
    kernels: Kernels, context: Context, count: int, n: int, lengths: Sequence[int], arrays: Sequence[Any], work: str
) -> None:
    """Scan long rows by groups of work items."""
    group = min(GROUP, context.profile.max_local_size)
    tile = group * np.dtype(work).itemsize
    wanted = max(1, context.profile.compute_units * 8 // count)
    piece = -(-max(-(-n // wanted), LONG) // group) * group
    pieces = -(-n // piece)
    totals = empty(context, (count, pieces), work)
    items = count * pieces * group
    if pieces > 1:
        kernels["pieces"].call(items, group, pieces, n, piece, 0, *lengths, *arrays, totals, tile)
        kernels["starts"].scall(count, count, pieces, totals)
    kernels["pieces"].call(items, group, pieces, n, piece, 1, *lengths, *arrays, totals, tile)


def _kernels(dtype: str, mode: str, kept: int, serial: bool) -> list[Kernel]:
    dims = range(kept)
    words = {
        "stored": ctype(dtype),
        "work": c_type(dtype),
        "load": load_w(dtype),
        "store": write_w(dtype),
        "width": SIDE_BY_SIDE if serial else 1,
        "identity": 0 if mode == "add" else 1,
        "combine": _combine(dtype, mode),
        "lengths": ", ".join(f"ga_size k{d}" for d in dims),
        "x_steps": ", ".join(f"ga_ssize xs{d}" for d in dims),
        "z_steps": ", ".join(f"ga_ssize zs{d}" for d in dims),
        "places": "\n".join(
            f"xp[c] += (ga_ssize)(rest % k{d}) * xs{d}; zp[c] += (ga_ssize)(rest % k{d}) * zs{d}; rest /= k{d};"
            for d in reversed(dims)
        ),
    }
    flags = Kernel.get_flags(dtype)
    code = (_COMMON + _ROWS + ("" if serial else _PIECES)).format(**words)
    arrays = [*[SIZE] * kept, ARRAY, *[SSIZE] * (kept + 1), ARRAY, *[SSIZE] * (kept + 1)]
    rows = Kernel(code, "rows", [SIZE, SIZE, SIZE, *arrays], flags)
    if serial:
        return [rows]
    pieces = Kernel(code, "pieces", [SIZE, SIZE, SIZE, SIZE, *arrays, ARRAY, LOCAL], flags)
    return [rows, pieces, Kernel(code, "starts", [SIZE, SIZE, ARRAY], flags)]


def _combine(dtype: str, mode: str) -> str:
    """Return the sum or product of `a` and `b`, in OpenCL C: whole numbers wrap, truth values stay such."""
    if dtype == "bool":
        return "a || b" if mode == "add" else "a && b"
    sign = "+" if mode == "add" else "*"
    if np.dtype(dtype).kind == "f":
        return f"a {sign} b"
    wide = unsigned(dtype)
    return f"({c_type(dtype)})(({wide})a {sign} ({wide})b)"

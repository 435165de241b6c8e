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
from typing import Any

import numpy as np

from optdb.codegen.layout import collapse, steps_of, view
from optdb.codegen.scalars.types import c_type, unsigned
from optdb.codegen.source import ROUND_EACH_STEP, add_places, functions, typed, work_dtype
from optdb.host.graph import Apply
from optdb.host.sorting import CumOp
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.views import contiguous, copying
from optdb.runtime.arrays import Array, empty

#: Rows that a processor's work item takes side by side.
SIDE_BY_SIDE = 8
#: Work items of a group, on a graphics card.
GROUP = 256
#: On a graphics card, rows are scanned by groups if they are as long, and fewer than so many.
LONG, MANY = 512, 2048


class OpenCLCumOp(Counterpart, OpenCLKernelBase, CumOp):
    """Sums ('add') or products ('mul') of all elements so far, along an axis or of all elements."""

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
    strides = [[steps_of(a)[d] for d in others] for a in (x, out)]
    lengths, (x_steps, out_steps) = collapse([x.shape[d] for d in others], strides, max(len(others), 1))
    n = x.shape[axis]
    count = x.size // n
    arrays = [x, *x_steps, steps_of(x)[axis], out, *out_steps, steps_of(out)[axis]]
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
        "WIDTH": SIDE_BY_SIDE if serial else 1,
        "IDENTITY": 0 if mode == "add" else 1,
        "COMBINE": _combine(dtype, mode),
        "LENGTHS": ", ".join(f"ga_size k{d}" for d in dims),
        "X_STEPS": ", ".join(f"ga_ssize xs{d}" for d in dims),
        "Z_STEPS": ", ".join(f"ga_ssize zs{d}" for d in dims),
        "ADD_PLACES": add_places("rest", "k", kept, {"xp[c]": "xs", "zp[c]": "zs"}),
    }
    names = ["combine", "rows", *([] if serial else ["pieces", "starts"])]
    text = "".join(functions("axes.cl")[name] for name in names)
    return Kernel.all_of(ROUND_EACH_STEP + typed(text, dtype, **words))


def _combine(dtype: str, mode: str) -> str:
    """Return the sum or product of `a` and `b`, in OpenCL C: whole numbers wrap, truth values stay such."""
    if dtype == "bool":
        return "a || b" if mode == "add" else "a && b"
    sign = "+" if mode == "add" else "*"
    if np.dtype(dtype).kind == "f":
        return f"a {sign} b"
    wide = unsigned(dtype)
    return f"({c_type(dtype)})(({wide})a {sign} ({wide})b)"

"""Cumulative sums and products along an axis.

One kernel accumulates element by element, as NumPy does; on CPUs, a work item interleaves eight rows. If an array has
only a few long rows, work groups on GPUs scan the rows piece by piece with a tree (Hillis and Steele, Data parallel
algorithms, 1986); this rounds differently from NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.elements import contiguous, copying
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import collapse, steps_of, view
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.scalars.types import c_type, unsigned
from optdb.codegen.source import ROUND_EACH_STEP, add_offsets, body, filled, functions, typed, work_dtype
from optdb.runtime.arrays import empty

_KERNELS = functions("cumulative.cl")

#: Number of rows that a CPU work item interleaves.
SIDE_BY_SIDE = 8
#: Work-group size on GPUs, and the number of consecutive elements that an item accumulates.
GROUP, EACH = 256, 8
#: On GPUs, work groups scan rows of at least `LONG` elements if there are fewer than `MANY` rows.
LONG, MANY = 512, 2048


@dataclass(eq=False)
class Cumulate(Operation):
    """The cumulative sums or products along an axis."""

    x: ArraySpec
    #: Sums ('add') or products ('mul').
    mode: str = "add"
    #: Axis to accumulate along; None for all elements, in C order.
    axis: int | None = None

    def kernels(self) -> list[Kernel]:
        serial = self.context.profile.runs_items_serially
        dims = range(1 if self.axis is None else max(self.x.ndim - 1, 1))
        words = {
            "WIDTH": SIDE_BY_SIDE if serial else 1,
            "IDENTITY": 0 if self.mode == "add" else 1,
            "COMBINE": _combine(self.x.dtype, self.mode),
            "EACH": EACH,
            "LENGTHS": ", ".join(f"ga_size k{d}" for d in dims),
            "X_STEPS": ", ".join(f"ga_ssize xs{d}" for d in dims),
            "Z_STEPS": ", ".join(f"ga_ssize zs{d}" for d in dims),
            "ADD_OFFSETS": add_offsets("rest", "k", len(dims), {"xp[c]": "xs", "zp[c]": "zs"}),
        }
        names = ["combine", "rows", *([] if serial else ["pieces", "starts"])]
        text = filled("".join(_KERNELS[name] for name in names), SCAN=body(_KERNELS["scan"]))
        kernels = Kernel.all_of(ROUND_EACH_STEP + typed(text, self.x.dtype, **words))
        return kernels + (copying(self.x).kernels() if self.axis is None else [])

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        (x,) = inputs
        out = output_array(outputs[0], self.context, (x.size,) if self.axis is None else x.shape, x.dtype)
        if not out.size:
            return
        if self.axis is None:
            x = view(contiguous(x, self.x, kernels, self.context), (x.size,), (x.dtype.itemsize,))
        axis = (self.axis or 0) % x.ndim
        others = [d for d in range(x.ndim) if d != axis]
        strides = [[steps_of(a)[d] for d in others] for a in (x, out)]
        lengths, (x_steps, out_steps) = collapse([x.shape[d] for d in others], strides, max(len(others), 1))
        n = x.shape[axis]
        count = x.size // n
        args = [*lengths, x, *x_steps, steps_of(x)[axis], out, *out_steps, steps_of(out)[axis]]
        if self.context.profile.runs_items_serially:
            each = max(SIDE_BY_SIDE, -(-count // (self.context.profile.compute_units * 4)))
            kernels["rows"].call(-(-count // each), 1, count, n, each, *args)
        elif n < LONG or count >= MANY:
            kernels["rows"].scall(count, count, n, 1, *args)
        else:
            self._in_pieces(kernels, count, n, args)

    def _in_pieces(self, kernels: Kernels, count: int, n: int, args: Sequence[Any]) -> None:
        profile, work = self.context.profile, work_dtype(self.x.dtype)
        group = min(GROUP, profile.max_local_size)
        # Each item needs local memory for a total, its elements, and a gap after the elements.
        tile = group * (EACH + 2) * np.dtype(work).itemsize
        target_pieces = max(1, profile.compute_units * 8 // count)
        piece = -(-max(-(-n // target_pieces), LONG) // (group * EACH)) * group * EACH
        pieces = -(-n // piece)
        totals = empty(self.context, (count, pieces), work)
        items = count * pieces * group
        if pieces > 1:
            kernels["pieces"].call(items, group, pieces, n, piece, 0, *args, totals, tile)
            kernels["starts"].call(count * group, group, pieces, totals, tile)
        kernels["pieces"].call(items, group, pieces, n, piece, 1, *args, totals, tile)


def _combine(dtype: str, mode: str) -> str:
    """Return the expression for the sum or product of `a` and `b`: integers wrap, and booleans stay booleans."""
    if dtype == "bool":
        return "a || b" if mode == "add" else "a && b"
    sign = "+" if mode == "add" else "*"
    if np.dtype(dtype).kind == "f":
        return f"a {sign} b"
    wide = unsigned(dtype)
    return f"({c_type(dtype)})(({wide})a {sign} ({wide})b)"

"""Ops along axes: cumulative sums and products, the largest elements, and searches in sorted vectors.

One kernel computes cumulative sums and products element by element, as the host does: for floats, its results equal the
host's to the last bit. A processor's work item takes eight rows side by side, which hides the latency of each. A
graphics card scans many rows the same way. Where rows are long and few, groups of work items scan them in pieces, by a
tree, after a kernel has computed the totals of all pieces before. These scans round floats otherwise than the host.

Each value is searched in a sorted vector by bisection. Values are compared in the dtype that NumPy promotes both arrays
to, and NaN is the largest, as in the order of `sort`.

References
----------
The scan of a piece is Hillis and Steele's (Data parallel algorithms, 1986).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.elements import contiguous, copying
from optdb.codegen.layout import collapse, launch_chunks, launch_items, size_of, steps_of, view
from optdb.codegen.scalars.types import c_type, unsigned
from optdb.codegen.source import ROUND_EACH_STEP, add_places, functions, load_w, typed, work_dtype
from optdb.host.api import ops as host
from optdb.host.api.graph import Apply
from optdb.host.api.ops import CumOp, SearchsortedOp
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, ctype, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.reduction_plan import SMALLEST_PART
from optdb.runtime.arrays import Array, empty

_KERNELS = functions("axes.cl")

#: For each side, whether a vector's element (`here`) stands before the place of a value.
_IS_BEFORE = {"left": "less(here, value)", "right": "!less(value, here)"}

#: Rows that a processor's work item takes side by side.
SIDE_BY_SIDE = 8
#: Work items of a group, on a graphics card.
GROUP = 256
#: On a graphics card, groups scan rows that have at least `LONG` elements, if there are fewer than `MANY` rows.
LONG, MANY = 512, 2048


class OpenCLCumOp(Counterpart, OpenCLKernelBase, CumOp):
    """Sums ('add') or products ('mul') of all elements so far, along an axis or of all elements."""

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x = node.inputs[0].type
        kept_ndim = 1 if self.axis is None else max(x.ndim - 1, 1)
        kernels = _cumulating_kernels(x.dtype, self.mode, kept_ndim, self.get_context(node).profile.runs_items_serially)
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
    target_pieces = max(1, context.profile.compute_units * 8 // count)
    piece = -(-max(-(-n // target_pieces), LONG) // group) * group
    pieces = -(-n // piece)
    totals = empty(context, (count, pieces), work)
    items = count * pieces * group
    if pieces > 1:
        kernels["pieces"].call(items, group, pieces, n, piece, 0, *lengths, *arrays, totals, tile)
        kernels["starts"].scall(count, count, pieces, totals)
    kernels["pieces"].call(items, group, pieces, n, piece, 1, *lengths, *arrays, totals, tile)


def _cumulating_kernels(dtype: str, mode: str, kept: int, serial: bool) -> list[Kernel]:
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
    text = "".join(_KERNELS[name] for name in names)
    return Kernel.all_of(ROUND_EACH_STEP + typed(text, dtype, **words))


def _combine(dtype: str, mode: str) -> str:
    """Return the sum or product of `a` and `b`, in OpenCL C: integers wrap, booleans stay booleans."""
    if dtype == "bool":
        return "a || b" if mode == "add" else "a && b"
    sign = "+" if mode == "add" else "*"
    if np.dtype(dtype).kind == "f":
        return f"a {sign} b"
    wide = unsigned(dtype)
    return f"({c_type(dtype)})(({wide})a {sign} ({wide})b)"


class _OfLargest(Counterpart, OpenCLKernelBase):
    """The base of both ops: one kernel finds the largest elements and their places."""

    def prepare_node(self, node: Apply, storage_map: Any, compute_map: Any, impl: str | None) -> None:
        """Do nothing: the host prepares its own C code here."""

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x = node.inputs[0].type
        kept_ndim, folded_ndim = max(x.ndim - len(self.axis), 1), max(len(self.axis), 1)
        # The first NaN is the largest; of equals, the first.
        larger = "x > largest" + " || (isnan(x) && !isnan(largest))" * (np.dtype(x.dtype).kind == "f")
        words = {
            "LENGTHS": ", ".join(
                [f"ga_size k{d}" for d in range(kept_ndim)] + [f"ga_size r{d}" for d in range(folded_ndim)]
            ),
            "STEPS": ", ".join(
                [f"ga_ssize ks{d}" for d in range(kept_ndim)] + [f"ga_ssize rs{d}" for d in range(folded_ndim)]
            ),
            "ADD_BASE": add_places("rest", "k", kept_ndim, {"base": "ks"}),
            "ADD_ROW": add_places("rest", "r", folded_ndim - 1, {"p": "rs"}),
            "ROW": f"r{folded_ndim - 1}",
            "ROW_STEP": f"rs{folded_ndim - 1}",
            "LARGER": larger,
        }
        return [Kernel(typed(_KERNELS["largest"], x.dtype, **words))]

    def _find(self, x: Array, largest: Array, places: Array, kernels: Kernels, context: Context) -> None:
        n = places.size
        if not n:
            return
        if not x.size:
            raise ValueError(f"{self} has no largest element to find in an array of shape {tuple(x.shape)}")
        kept_lengths, kept_steps = _axes_of(x, [axis for axis in range(x.ndim) if axis not in self.axis])
        lengths, steps = _axes_of(x, self.axis)
        m, each = size_of(lengths), 1
        if context.profile.runs_items_serially:  # several results, if they are small
            each = max(1, min(SMALLEST_PART // m, -(-n // context.profile.compute_units)))
        args = [*kept_lengths, *lengths, x, *kept_steps, *steps, largest, places]
        launch_items(kernels["largest"], context, -(-n // each), n, each, m, *args)

    def _shape(self, x: Array) -> list[int]:
        return [length for axis, length in enumerate(x.shape) if axis not in self.axis]


class OpenCLMaxAndArgmax(_OfLargest, host.MaxAndArgmax):
    """The largest elements along some axes, and their places."""

    @classmethod
    def like(cls, op: host.MaxAndArgmax) -> OpenCLMaxAndArgmax:
        """Return the op with the axes of one of the host's, whose constructor takes a list and keeps a tuple."""
        return cls(list(op.axis))

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        (x,) = inputs
        largest = output_array(outputs[0], context, self._shape(x), x.dtype)
        places = output_array(outputs[1], context, self._shape(x), "int64")
        self._find(x, largest, places, kernels, context)


class OpenCLArgmax(_OfLargest, host.Argmax):
    """The places of the largest elements along some axes."""

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        (x,) = inputs
        places = output_array(outputs[0], context, self._shape(x), "int64")
        self._find(x, empty(context, places.shape, x.dtype), places, kernels, context)


def _axes_of(x: Array, axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return lengths and strides of some axes, merged where strides allow it, and padded with ones."""
    strides = [[steps_of(x)[axis] for axis in axes]]
    lengths, (steps,) = collapse([x.shape[axis] for axis in axes], strides, max(len(axes), 1))
    return lengths, steps


class OpenCLSearchsortedOp(Counterpart, OpenCLKernelBase, SearchsortedOp):
    """The place of each value in a sorted vector: before its equals ('left'), or behind them ('right')."""

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x, v = (var.type for var in node.inputs)
        work = compared_in(x.dtype, v.dtype)
        words = {
            "V": ctype(v.dtype),
            "LOAD_V": load_w(v.dtype),
            "C": ctype(work_dtype(work)),
            "LESS": "a < b || (b != b && a == a)" if work.startswith("float") else "a < b",
            "IS_BEFORE": _IS_BEFORE[self.side],
        }
        return [Kernel(typed(_KERNELS["less"] + _KERNELS["searchsorted"], x.dtype, **words)), *copying(v).kernels()]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, v = inputs
        out = output_array(outputs[0], context, v.shape, "int64")
        if not out.size:
            return
        v = contiguous(v, node.inputs[1].type, kernels, context)
        launch_chunks(kernels["searchsorted"], context, out.size, x.shape[0], x, *steps_of(x), v, out)


def compared_in(sorted_dtype: str, wanted_dtype: str) -> str:
    """Return the dtype in which the elements of two arrays are compared, as NumPy does it."""
    return np.promote_types(sorted_dtype, wanted_dtype).name

"""Searches: the largest elements along axes, with their indices, and bisection in a sorted vector.

Bisection compares values in the dtype to which NumPy promotes the values and the vector. NaN is the largest value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.elements import contiguous, copying
from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.layout import collapse, launch_chunks, launch_items, size_of, steps_of
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.reductions.plan import SMALLEST_PART
from optdb.codegen.source import add_offsets, functions, load_w, typed, work_dtype
from optdb.runtime.arrays import Array

_KERNELS = functions("searching.cl")

#: For each side, the C condition under which a vector's element (`here`) is before the insertion index of `value`.
_IS_BEFORE = {"left": "less(here, value)", "right": "!less(value, here)"}


@dataclass(eq=False)
class FindLargest(Operation):
    """The largest elements along given axes, and their flat indices within these axes, as int64.

    The first of several equal elements is found, and the first NaN counts as the largest element.
    """

    x: ArraySpec
    axes: Sequence[int]
    #: Whether the elements are the first output; otherwise the indices are the only output.
    values: bool = True

    def __post_init__(self) -> None:
        self._kept = [axis for axis in range(self.x.ndim) if axis not in self.axes]

    def kernels(self) -> list[Kernel]:
        kept_ndim, folded_ndim = max(len(self._kept), 1), max(len(self.axes), 1)
        axes = [*[("k", d) for d in range(kept_ndim)], *[("r", d) for d in range(folded_ndim)]]
        # The first NaN counts as the largest element. Of several equal elements, the first one is found.
        larger = "x > largest" + " || (isnan(x) && !isnan(largest))" * (np.dtype(self.x.dtype).kind == "f")
        words = {
            "LENGTHS": ", ".join(f"ga_size {kind}{d}" for kind, d in axes),
            "STEPS": ", ".join(f"ga_ssize {kind}s{d}" for kind, d in axes),
            "ADD_BASE": add_offsets("rest", "k", kept_ndim, {"base": "ks"}),
            "ADD_ROW": add_offsets("rest", "r", folded_ndim - 1, {"p": "rs"}),
            "ROW": f"r{folded_ndim - 1}",
            "ROW_STEP": f"rs{folded_ndim - 1}",
            "LARGER": larger,
        }
        return [Kernel(typed(_KERNELS["largest"], self.x.dtype, **words))]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        (x,) = inputs
        if not all(x.shape[axis] for axis in self.axes):
            raise ValueError(f"{self} has no largest element to find in an array of shape {tuple(x.shape)}")
        shape = [x.shape[axis] for axis in self._kept]
        largest = output_array(outputs[0] if self.values else [None], self.context, shape, x.dtype)
        indices = output_array(outputs[-1], self.context, shape, "int64")
        n = indices.size
        if not n:
            return
        kept_lengths, kept_steps = _axes_of(x, self._kept)
        lengths, steps = _axes_of(x, self.axes)
        m, each = size_of(lengths), 1
        if self.context.profile.runs_items_serially:
            each = max(1, min(SMALLEST_PART // m, -(-n // self.context.profile.compute_units)))
        args = [*kept_lengths, *lengths, x, *kept_steps, *steps, largest, indices]
        launch_items(kernels["largest"], self.context, -(-n // each), n, each, m, *args)


def _axes_of(x: Array, axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    strides = [[steps_of(x)[axis] for axis in axes]]
    lengths, (steps,) = collapse([x.shape[axis] for axis in axes], strides, max(len(axes), 1))
    return lengths, steps


@dataclass(eq=False)
class SearchSorted(Operation):
    """For each value, the int64 index for its insertion into a sorted vector, 'left' or 'right' of equal elements."""

    x: ArraySpec
    values: ArraySpec
    side: str = "left"

    def kernels(self) -> list[Kernel]:
        work = compared_in(self.x.dtype, self.values.dtype)
        words = {
            "V": ctype(self.values.dtype),
            "LOAD_V": load_w(self.values.dtype),
            "C": ctype(work_dtype(work)),
            "LESS": "a < b || (b != b && a == a)" if work.startswith("float") else "a < b",
            "IS_BEFORE": _IS_BEFORE[self.side],
        }
        code = typed(_KERNELS["less"] + _KERNELS["searchsorted"], self.x.dtype, **words)
        return [Kernel(code), *copying(self.values).kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, v = inputs
        out = output_array(outputs[0], self.context, v.shape, "int64")
        if not out.size:
            return
        v = contiguous(v, self.values, kernels, self.context)
        launch_chunks(kernels["searchsorted"], self.context, out.size, x.shape[0], x, *steps_of(x), v, out)


def compared_in(sorted_dtype: str, wanted_dtype: str) -> str:
    """Return the dtype in which NumPy compares the elements of two arrays."""
    return np.promote_types(sorted_dtype, wanted_dtype).name

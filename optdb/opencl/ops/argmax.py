"""Where the largest elements are, and which they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.fp16 import load_w
from optdb.codegen.layout import size_of
from optdb.codegen.reduce.gather_reduce import walk
from optdb.codegen.scalars.types import c_type
from optdb.host import ops as host
from optdb.host.graph import Apply
from optdb.opencl.kernels import (
    ARRAY,
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
from optdb.opencl.ops.reduce import axes_of, launch_walk
from optdb.runtime.arrays import Array, empty

if TYPE_CHECKING:
    from optdb.runtime.context import Context


class _OfLargest(Counterpart, OpenCLKernelBase):
    """What the ops of this module share: one kernel that finds both."""

    def prepare_node(self, node: Apply, storage_map: Any, compute_map: Any, impl: str | None) -> None:
        """Do nothing: what the host prepares is for its own code."""

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x = node.inputs[0].type
        dtype, stored, computed = x.dtype, ctype(x.dtype), c_type(x.dtype)
        kept, folded = max(x.ndim - len(self.axis), 1), max(len(self.axis), 1)
        # The first one that is no number is the largest, and the first of equals.
        larger = "x > largest"
        if np.dtype(dtype).kind == "f":
            larger += " || (isnan(x) && !isnan(largest))"
        code = walk(
            "largest",
            stored,
            [("z", stored), ("places", "ga_long")],
            (kept, folded),
            start=f"{computed} largest = 0; ga_ssize best = 0; ga_ssize place = 0;",
            first=f"largest = {load_w(dtype)}(a[p]); best = p; place = i;",
            each=f"const {computed} x = {load_w(dtype)}(a[p]);\nif ({larger}) {{ largest = x; best = p; place = i; }}",
            finish="z[o] = a[best]; places[o] = place;",
        )
        params = [SIZE] * (5 + kept + folded) + [ARRAY] + [SSIZE] * (kept + folded) + [ARRAY, ARRAY]
        return [Kernel(code, "largest", params, Kernel.get_flags(dtype))]

    def _find(self, x: Array, largest: Array, places: Array, kernels: Kernels, context: Context) -> None:
        if not places.size:
            return
        if not x.size:
            raise ValueError(f"{self} has no largest element to find in an array of shape {tuple(x.shape)}")
        kept = [axis for axis in range(x.ndim) if axis not in self.axis]
        kept_lengths, kept_steps = axes_of(x, kept)
        lengths, steps = axes_of(x, self.axis)
        args = [*kept_lengths, *lengths, x, *kept_steps, *steps, largest, places]
        launch_walk(kernels["largest"], context, places.size, size_of(lengths), 1, args)

    def _shape(self, x: Array) -> list[int]:
        return [length for axis, length in enumerate(x.shape) if axis not in self.axis]


class OpenCLMaxAndArgmax(_OfLargest, host.MaxAndArgmax):
    """The largest elements along some axes, and their places."""

    host = host.MaxAndArgmax

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        (x,) = inputs
        largest = output_array(outputs[0], context, self._shape(x), x.dtype)
        places = output_array(outputs[1], context, self._shape(x), "int64")
        self._find(x, largest, places, kernels, context)


class OpenCLArgmax(_OfLargest, host.Argmax):
    """The places of the largest elements along some axes."""

    host = host.Argmax

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        (x,) = inputs
        places = output_array(outputs[0], context, self._shape(x), "int64")
        self._find(x, empty(context, places.shape, x.dtype), places, kernels, context)

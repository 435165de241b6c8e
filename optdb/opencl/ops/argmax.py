"""Where the largest elements are, and which they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.layout import collapse, launch_items, size_of, steps_of
from optdb.codegen.source import add_places, functions, typed
from optdb.host import ops as host
from optdb.host.graph import Apply
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.reduction_plan import SMALLEST_PART
from optdb.runtime.arrays import Array, empty


class _OfLargest(Counterpart, OpenCLKernelBase):
    """What the ops of this module share: one kernel that finds both."""

    def prepare_node(self, node: Apply, storage_map: Any, compute_map: Any, impl: str | None) -> None:
        """Do nothing: what the host prepares is for its own code."""

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        x = node.inputs[0].type
        kept, folded = max(x.ndim - len(self.axis), 1), max(len(self.axis), 1)
        # The first one that is no number is the largest, and the first of equals.
        larger = "x > largest" + " || (isnan(x) && !isnan(largest))" * (np.dtype(x.dtype).kind == "f")
        words = {
            "LENGTHS": ", ".join([f"ga_size k{d}" for d in range(kept)] + [f"ga_size r{d}" for d in range(folded)]),
            "STEPS": ", ".join([f"ga_ssize ks{d}" for d in range(kept)] + [f"ga_ssize rs{d}" for d in range(folded)]),
            "ADD_BASE": add_places("rest", "k", kept, {"base": "ks"}),
            "ADD_ROW": add_places("rest", "r", folded - 1, {"p": "rs"}),
            "ROW": f"r{folded - 1}",
            "ROW_STEP": f"rs{folded - 1}",
            "LARGER": larger,
        }
        return [Kernel(typed(functions("axes.cl")["largest"], x.dtype, **words))]

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
    """Return lengths and strides of some axes, in as few dimensions as will do; then filled up with ones."""
    strides = [[steps_of(x)[axis] for axis in axes]]
    lengths, (steps,) = collapse([x.shape[axis] for axis in axes], strides, max(len(axes), 1))
    return lengths, steps

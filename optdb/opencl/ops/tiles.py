"""An array many times beside and below itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optdb.codegen.layout import c_strides, view
from optdb.host import ops as host
from optdb.host.graph import Apply
from optdb.opencl.kernels import Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.elements import ElementKernels, once_per_node

if TYPE_CHECKING:
    from optdb.runtime.context import Context


class OpenCLTile(Counterpart, OpenCLKernelBase, host.Tile):
    """An array so many times along each axis; how often comes from the host.

    Parameters
    ----------
    ndim : int
        Of the result.
    """

    host = host.Tile
    device_inputs = slice(0, 1)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return self._elements(node).kernels()

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, wanted = inputs
        times = [int(count) for count in np.atleast_1d(wanted)]
        if max(len(times), x.ndim) != self.ndim or min(times, default=0) < 0:
            raise ValueError(f"{self} cannot repeat an array of {x.ndim} dimensions {times} times")
        item, missing = x.dtype.itemsize, self.ndim - x.ndim
        times = [1] * (self.ndim - len(times)) + times
        lengths = [1] * missing + list(x.shape)
        steps = [item] * missing + list(x.strides)
        shape = [count * length for count, length in zip(times, lengths, strict=True)]
        out = output_array(outputs[0], context, shape, x.dtype)
        # An axis of the result is two: which copy, and where in it.
        pairs = [n for pair in zip(times, lengths, strict=True) for n in pair]
        once = [n for length in lengths for n in (1, length)]
        source = view(x, once, [n for step in steps for n in (item, step)])
        target = view(out, pairs, c_strides(pairs, item))
        self._elements(node).launch(kernels, context, pairs, [source, target])

    @once_per_node
    def _elements(self, node: Apply) -> ElementKernels:
        return ElementKernels.copying(node.inputs[0].type.dtype, 2 * self.ndim)

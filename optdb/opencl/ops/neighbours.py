"""Images cut into patches, each of which becomes a row of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.layout import launch_chunks, steps_of
from optdb.codegen.source import filled, functions
from optdb.host import layers as host
from optdb.host.graph import Apply
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.elements import RAW


class OpenCLImages2Neibs(Counterpart, OpenCLKernelBase, host.Images2Neibs):
    """The patches of images, as rows of a matrix."""

    device_inputs = slice(0, 1)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        raw, wrapped = RAW[np.dtype(node.inputs[0].type.dtype).itemsize], self.mode == "wrap_centered"
        return [Kernel(filled(functions("indexing.cl")["patches"], RAW=raw, WRAPPED=int(wrapped)))]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, *numbers = inputs
        sizes, steps = self._numbers(*numbers)
        images, stack, *lengths = x.shape
        grid = [self._count(axis, *given) for axis, given in enumerate(zip(lengths, sizes, steps))]
        shape = (grid[0] * grid[1] * stack * images, sizes[0] * sizes[1])
        out = output_array(outputs[0], context, shape, x.dtype)
        starts = [{"half": size // 2, "wrap_centered": size // 2, "full": size - 1}.get(self.mode, 0) for size in sizes]
        args = [stack, *lengths, *grid, *sizes, *steps, *starts, x, *steps_of(x), out]
        launch_chunks(kernels["patches"], context, out.size, *args)

    def _numbers(self, neib_shape: np.ndarray, neib_step: np.ndarray) -> tuple[list[int], list[int]]:
        """Return the lengths of patches, and how far apart they are, if there are two of each, all positive."""
        for name, values in (("neib_shape", neib_shape), ("neib_step", neib_step)):
            if values.shape != (2,):
                raise TypeError(f"{self}: {name} has to contain 2 elements, not {values.tolist()}")
            if min(values) < 1:
                raise ValueError(f"{self}: {name} has values <= 0: {values.tolist()}")
        return [int(size) for size in neib_shape], [int(step) for step in neib_step]

    def _count(self, axis: int, length: int, size: int, step: int) -> int:
        """Return how many patches there are along an axis of an image, if they fit."""
        if self.mode == "wrap_centered":
            if size % 2 != 1:
                raise TypeError(f"{self} needs patches with odd shapes: neib_shape[{axis}]={size}")
            if length < size:
                raise TypeError(f"{self}: an image of length {length} is smaller than a patch of {size}, axis {axis}")
            return -(-length // step)
        if self.mode == "ignore_borders":
            return max(0, 1 + (length - size) // step)
        room = {"valid": length - size, "half": length - size % 2, "full": length + size - 2}[self.mode]
        if length < size or room % step:
            raise TypeError(
                f"{self}: neib_shape[{axis}]={size}, neib_step[{axis}]={step} and"
                f" ten4.shape[{2 + axis}]={length} not consistent"
            )
        return 1 + room // step

"""Patches of images, as rows of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.elements import RAW
from optdb.codegen.kernels import Kernel
from optdb.codegen.layout import launch_chunks, steps_of
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array
from optdb.codegen.source import filled, functions
from optdb.numpy_types import HostArray


@dataclass(eq=False)
class ImagePatches(Operation):
    """The patches of images, as rows of a matrix.

    The inputs are the images, of shape (images, channels, height, width), and two host vectors: the height and width of
    a patch, and the strides between patches.
    """

    x: ArraySpec
    #: With 'valid', patches must fit exactly; 'ignore_borders' ignores the remainder; 'half' and 'full' pad with zeros;
    #: 'wrap_centered' wraps around.
    mode: str = "valid"

    def kernels(self) -> list[Kernel]:
        raw, wrapped = RAW[np.dtype(self.x.dtype).itemsize], self.mode == "wrap_centered"
        return [Kernel(filled(functions("image_patches.cl")["patches"], RAW=raw, WRAPPED=int(wrapped)))]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, *numbers = inputs
        sizes, steps = self._numbers(*numbers)
        images, stack, *lengths = x.shape
        grid = [self._count(axis, *extents) for axis, extents in enumerate(zip(lengths, sizes, steps))]
        shape = (grid[0] * grid[1] * stack * images, sizes[0] * sizes[1])
        out = output_array(outputs[0], self.context, shape, x.dtype)
        starts = [{"half": size // 2, "wrap_centered": size // 2, "full": size - 1}.get(self.mode, 0) for size in sizes]
        args = [stack, *lengths, *grid, *sizes, *steps, *starts, x, *steps_of(x), out]
        launch_chunks(kernels["patches"], self.context, out.size, *args)

    def _numbers(self, neib_shape: HostArray, neib_step: HostArray) -> tuple[list[int], list[int]]:
        """Return the lengths and strides of patches; raise an error unless each is a pair of positive numbers."""
        for name, values in (("neib_shape", neib_shape), ("neib_step", neib_step)):
            if values.shape != (2,):
                raise TypeError(f"{self}: {name} has to contain 2 elements, not {values.tolist()}")
            if min(values) < 1:
                raise ValueError(f"{self}: {name} has values <= 0: {values.tolist()}")
        return [int(size) for size in neib_shape], [int(step) for step in neib_step]

    def _count(self, axis: int, length: int, size: int, step: int) -> int:
        """Return the number of patches along an image axis; raise TypeError if they do not fit."""
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

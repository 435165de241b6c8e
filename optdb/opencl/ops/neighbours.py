"""Images cut into patches, each of which becomes a row of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optdb.codegen.layout import launch_chunks
from optdb.host import layers as host
from optdb.host.graph import Apply
from optdb.opencl.kernels import ARRAY, SIZE, SSIZE, Context, Kernel, Kernels, OpenCLKernelBase, Outputs, output_array
from optdb.opencl.ops.counterpart import Counterpart
from optdb.opencl.ops.elements import RAW

# A piece of the matrix is filled in runs, each of which is a row of a patch.
_PATCHES = """
OUTLINED_KERNEL void patches(ga_size n, ga_size chunk, ga_size stack, ga_ssize height, ga_ssize width,
    ga_size grid_rows, ga_size grid_columns, ga_size rows, ga_size columns, ga_ssize row_step, ga_ssize column_step,
    ga_ssize row_start, ga_ssize column_start,
    GLOBAL_MEM {raw} *x, ga_size x_off, ga_ssize x0, ga_ssize x1, ga_ssize x2, ga_ssize x3,
    GLOBAL_MEM {raw} *z, ga_size z_off)
{{
x = (GLOBAL_MEM {raw} *)((GLOBAL_MEM char *)x + x_off);
z = (GLOBAL_MEM {raw} *)((GLOBAL_MEM char *)z + z_off);
ga_size o = get_global_id(0) * chunk;
const ga_size end = min(o + chunk, n);
while (o < end) {{
ga_size rest = o;
const ga_ssize j = rest % columns; rest /= columns;
const ga_ssize i = rest % rows; rest /= rows;
const ga_ssize b = rest % grid_columns; rest /= grid_columns;
const ga_ssize a = rest % grid_rows; rest /= grid_rows;
ga_ssize row = i + a * row_step - row_start, column = j + b * column_step - column_start;
{wrap_row}
const GLOBAL_MEM {raw} *from = x + (ga_ssize)(rest / stack) * x0 + (ga_ssize)(rest % stack) * x1 + row * x2;
const bool inside = row >= 0 && row < height;
const ga_size stop = min(end, o + (columns - j));
for (; o < stop; ++o, ++column) {{
{at}
z[o] = inside && at >= 0 && at < width ? from[at * x3] : ({raw})(0);
}}
}}
}}
"""
_WRAPPED = "ga_ssize at = column < 0 ? column + width : column >= width ? column - width : column;"
_WRAPPED_ROW = "row = row < 0 ? row + height : row >= height ? row - height : row;"


class OpenCLImages2Neibs(Counterpart, OpenCLKernelBase, host.Images2Neibs):
    """The patches of images, as rows of a matrix."""

    device_inputs = slice(0, 1)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        wrapped = self.mode == "wrap_centered"
        code = _PATCHES.format(
            raw=RAW[np.dtype(node.inputs[0].type.dtype).itemsize],
            wrap_row=_WRAPPED_ROW if wrapped else "",
            at=_WRAPPED if wrapped else "const ga_ssize at = column;",
        )
        kinds = [*[SIZE] * 3, *[SSIZE] * 2, *[SIZE] * 4, *[SSIZE] * 4, ARRAY, *[SSIZE] * 4, ARRAY]
        return [Kernel(code, "patches", kinds)]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, *numbers = inputs
        sizes, steps = self._numbers(*numbers)
        images, stack, *lengths = x.shape
        grid = [self._count(axis, *given) for axis, given in enumerate(zip(lengths, sizes, steps))]
        shape = (grid[0] * grid[1] * stack * images, sizes[0] * sizes[1])
        out = output_array(outputs[0], context, shape, x.dtype)
        if not out.size:
            return
        starts = [{"half": size // 2, "wrap_centered": size // 2, "full": size - 1}.get(self.mode, 0) for size in sizes]
        strides = [step // x.dtype.itemsize for step in x.strides]
        args = [stack, *lengths, *grid, *sizes, *steps, *starts, x, *strides, out]
        launch_chunks(kernels["patches"], context, out.size, *args)

    def _numbers(self, neib_shape: np.ndarray, neib_step: np.ndarray) -> tuple[list[int], list[int]]:
        """Return the lengths of patches, and how far apart they are.

        Raises
        ------
        TypeError
            If there are not two of each.
        ValueError
            If they are not positive.
        """
        for name, values in (("neib_shape", neib_shape), ("neib_step", neib_step)):
            if values.shape != (2,):
                raise TypeError(f"{self}: {name} has to contain 2 elements, not {values.tolist()}")
            if min(values) < 1:
                raise ValueError(f"{self}: {name} has values <= 0: {values.tolist()}")
        return [int(size) for size in neib_shape], [int(step) for step in neib_step]

    def _count(self, axis: int, length: int, size: int, step: int) -> int:
        """Return how many patches there are along an axis of an image.

        Raises
        ------
        TypeError
            If the patches do not fit.
        """
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

"""Diagonals of arrays, and arrays around diagonals.

A diagonal is a view: one step along it is a step along both axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.elements import ElementKernels, copying
from optdb.codegen.layout import view
from optdb.host.api import ops as host
from optdb.host.api import scalars
from optdb.host.api.graph import Apply
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, output_array, output_zeros
from optdb.opencl.ops.counterpart import Counterpart, View, on_one_device
from optdb.opencl.ops.elemwise import cast
from optdb.runtime.arrays import Array, DeviceArray
from optdb.runtime.sizes import as_int, part_of, smallest


class OpenCLExtractDiag(View, host.ExtractDiag):
    """The diagonals of the matrices along two axes, `offset` to the right of the main one, as a view."""

    __props__ = ("offset", "axis1", "axis2")
    own_attributes = frozenset({"view"})
    view_map = {0: [0]}  # noqa: RUF012  (the host's protocol)

    def __init__(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> None:
        super().__init__(offset, axis1, axis2, view=True)

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: Sequence[list[Any]], params: Any = None) -> None:
        (x,) = inputs
        outputs[0][0] = diagonal(x, self.offset, self.axis1, self.axis2)


def diagonal(x: Array, offset: int, axis1: int, axis2: int) -> DeviceArray:
    """Return a view of the diagonals along two axes; the axis along them is the last.

    Raises
    ------
    ValueError
        If these are not two axes of `x`.
    """
    ndim = x.ndim
    rows, columns = axis1 + ndim * (axis1 < 0), axis2 + ndim * (axis2 < 0)
    if not (0 <= rows < ndim and 0 <= columns < ndim) or rows == columns:
        raise ValueError(f"axes {axis1} and {axis2} are not two axes of an array with {ndim} dimensions")
    down, right = max(-offset, 0), max(offset, 0)
    length = max(min(x.shape[rows] - down, x.shape[columns] - right), 0)
    other_axes = [axis for axis in range(ndim) if axis not in (rows, columns)]
    return view(
        x,
        [*[x.shape[axis] for axis in other_axes], length],
        [*[x.strides[axis] for axis in other_axes], x.strides[rows] + x.strides[columns]],
        down * x.strides[rows] + right * x.strides[columns],
    )


class OpenCLAllocDiag(Counterpart, OpenCLKernelBase, host.AllocDiag):
    """Zeros, and an array along a diagonal of two new axes."""

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        return copying(node.inputs[0].type).kernels()

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        (x,) = inputs
        side = x.shape[-1] + abs(self.offset)
        axes = self._axes(x.ndim)
        shape = [(*x.shape[:-1], side, side)[axis] for axis in axes]
        out = output_zeros(outputs[0], context, shape, x.dtype)
        # The new axes are the last two until they are permuted.
        rows, columns = axes.index(x.ndim - 1), axes.index(x.ndim)
        along = diagonal(out, self.offset, rows, columns)
        copying(node.inputs[0].type).launch(kernels, context, x.shape, [x, along])

    def _axes(self, ndim: int) -> list[int]:
        """Return which axis stands where in the result: those of the array, and behind them the two new ones."""
        axes = list(range(ndim - 1))
        if not axes:
            return [0, 1]
        for axis, new in ((min(self.axis1, self.axis2), ndim - 1), (max(self.axis1, self.axis2), ndim)):
            axes = [*axes[:axis], new, *axes[axis:]]
        return axes


class _Fill(Counterpart, OpenCLKernelBase):
    """The base of both ops that write a number along a diagonal of a copy."""

    device_inputs = slice(0, 2)

    def make_node(self, x: Any, value: Any, *offset: Any) -> Apply:
        """Return the node for an array, a number, and the diagonal, if there is a choice."""
        x, value = on_one_device([x, value])
        if scalars.upcast(x.type.dtype, value.type.dtype) == x.type.dtype:  # else the host rejects it
            value = cast(value, x.type.dtype)
        return super().make_node(x, value, *offset)

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        dtype = node.inputs[0].type.dtype
        fill = ElementKernels.copying(dtype, 1, "fill", single=True)
        return [*copying(node.inputs[0].type).kernels(), *fill.kernels()]

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, value, *offset = inputs
        out = output_array(outputs[0], context, x.shape, x.dtype)
        copying(node.inputs[0].type).launch(kernels, context, x.shape, [x, out])
        start, step, count = self._elements(x.shape, *map(as_int, offset))
        item = x.dtype.itemsize
        along = view(out, (count,), (step * item,), start * item)
        fill = ElementKernels.copying(x.dtype.name, 1, "fill", single=True)
        fill.launch(kernels, context, (count,), [view(value, (1,), (item,)), along])

    def _elements(self, shape: Sequence[int], *offset: int) -> tuple[int, int, int]:
        """Return the first element, the distance to the next, and how many there are."""
        raise NotImplementedError


class OpenCLFillDiagonal(_Fill, host.FillDiagonal):
    """An array with a number along its main diagonal."""

    def _elements(self, shape: Sequence[int], *offset: int) -> tuple[int, int, int]:
        if len(shape) == 2:
            return 0, shape[1] + 1, smallest(*shape)
        if any(length != shape[0] for length in shape):
            raise ValueError(f"{self}: all dimensions of the array must be of equal length, not {tuple(shape)}")
        step = 1
        for length in shape[1:]:
            step = step * length + 1
        return 0, step, shape[0]


class OpenCLFillDiagonalOffset(_Fill, host.FillDiagonalOffset):
    """A matrix with a number along one of its diagonals; which one comes from the host."""

    def _elements(self, shape: Sequence[int], *offset: int) -> tuple[int, int, int]:
        (right,) = offset
        rows, columns = shape
        start = right if right >= 0 else -right * columns
        count = smallest(smallest(rows, columns), columns - right if right >= 0 else rows + right)
        # As the host has it, also where the matrix has no such diagonal: then this may be counted from the end.
        end = start + (columns + 1) * count
        first, number, step = part_of(rows * columns, slice(start, end, columns + 1))
        return first, step, number

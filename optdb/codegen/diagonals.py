"""Operations that write diagonals. `optdb.codegen.views.diagonal` reads a diagonal as a view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optdb.codegen.elements import Copying, ElementKernels, copying
from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.layout import view
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array, output_zeros
from optdb.codegen.scalars.types import is_complex
from optdb.codegen.source import functions, typed, write_w
from optdb.codegen.views import diagonal
from optdb.runtime.sizes import as_int, part_of, smallest


@dataclass(eq=False)
class Eye(Operation):
    """A matrix of zeros with ones on a diagonal.

    The inputs are host integers: the numbers of rows and of columns (None for a square matrix), and the offset of the
    diagonal to the right of the main one.
    """

    dtype: str

    def kernels(self) -> list[Kernel]:
        one = f"({ctype(self.dtype)})(1, 0)" if is_complex(self.dtype) else f"{write_w(self.dtype)}(1)"
        return [Kernel(typed(functions("diagonals.cl")["eye"], self.dtype, ONE=one))]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        n, m, k = inputs
        n, m, k = int(n), int(n if m is None else m), int(k)
        row, column = max(-k, 0), max(k, 0)
        matrix = output_zeros(outputs[0], self.context, (n, m), self.dtype)
        count = min(n - row, m - column)
        if count > 0:
            kernels["eye"].scall(count, matrix, row * m + column, m + 1, count)


@dataclass(eq=False)
class AroundDiagonal(Copying):
    """An array of zeros with the input's last axis on the diagonal of two new axes."""

    #: Offset of the diagonal to the right of the main one.
    offset: int = 0
    #: Positions of the new axes in the output.
    axis1: int = 0
    axis2: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._axes = _with_new_axes(self.x.ndim, *sorted((self.axis1, self.axis2)))

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        (x,) = inputs
        side = x.shape[-1] + abs(self.offset)
        shape = [(*x.shape[:-1], side, side)[axis] for axis in self._axes]
        out = output_zeros(outputs[0], self.context, shape, x.dtype)
        # The new axes are the last two until they are permuted.
        rows, columns = self._axes.index(x.ndim - 1), self._axes.index(x.ndim)
        along = diagonal(out, self.offset, rows, columns)
        self._copying.launch(kernels, self.context, x.shape, [x, along])


def _with_new_axes(ndim: int, first: int, second: int) -> list[int]:
    axes = list(range(ndim - 1))
    if not axes:
        return [0, 1]
    for axis, new in ((first, ndim - 1), (second, ndim)):
        axes = [*axes[:axis], new, *axes[axis:]]
    return axes


@dataclass(eq=False)
class FillDiagonal(Operation):
    """A copy of an array with its main diagonal filled with a number, a 0-d array that is the second input.

    If the array has more than two axes, all axes must have the same length.
    """

    x: ArraySpec

    def __post_init__(self) -> None:
        self._copying = copying(self.x)
        self._filling = ElementKernels.copying(self.x.dtype, 1, "fill", single=True)

    def kernels(self) -> list[Kernel]:
        return [*self._copying.kernels(), *self._filling.kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, value, *offset = inputs
        out = output_array(outputs[0], self.context, x.shape, x.dtype)
        self._copying.launch(kernels, self.context, x.shape, [x, out])
        start, step, count = self._elements(x.shape, *map(as_int, offset))
        item = x.dtype.itemsize
        along = view(out, (count,), (step * item,), start * item)
        self._filling.launch(kernels, self.context, (count,), [view(value, (1,), (item,)), along])

    def _elements(self, shape: Sequence[int], *offset: int) -> tuple[int, int, int]:
        """Return the index of the first element, the step to the next one, and the number of elements."""
        if len(shape) == 2:
            return 0, shape[1] + 1, smallest(*shape)
        if any(length != shape[0] for length in shape):
            raise ValueError(f"{self}: all dimensions of the array must be of equal length, not {tuple(shape)}")
        step = 1
        for length in shape[1:]:
            step = step * length + 1
        return 0, step, shape[0]


class FillDiagonalOffset(FillDiagonal):
    """A copy of a matrix with a diagonal filled with a number; the third input is its offset to the right."""

    def _elements(self, shape: Sequence[int], *offset: int) -> tuple[int, int, int]:
        (right,) = offset
        rows, columns = shape
        start = right if right >= 0 else -right * columns
        count = smallest(smallest(rows, columns), columns - right if right >= 0 else rows + right)
        # Same slice as the host's, even if the matrix has no such diagonal: `end` may then be a negative index.
        end = start + (columns + 1) * count
        first, number, step = part_of(rows * columns, slice(start, end, columns + 1))
        return first, step, number

"""Operations that create arrays from lengths on the host, copy arrays to C order, or write diagonals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.elements import Copying, ElementKernels, copied, copying
from optdb.codegen.elementwise import ElementCode, Operand
from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.layout import is_contiguous, view
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, check_lengths, output_array, output_zeros
from optdb.codegen.scalars.types import c_type, is_complex, unsigned
from optdb.codegen.source import ROUND_EACH_STEP, functions, typed, work_dtype, write_w
from optdb.codegen.views import diagonal, padded
from optdb.runtime.sizes import as_int, part_of, smallest


@dataclass(eq=False)
class Fill(Operation):
    """An array to which a value is broadcast; the inputs are the value (a device array) and the lengths of the axes."""

    value: ArraySpec
    ndim: int

    def __post_init__(self) -> None:
        self._copying = ElementKernels.copying(
            self.value.dtype, self.ndim, single=self.value.single, context=self.context
        )

    def kernels(self) -> list[Kernel]:
        return self._copying.kernels()

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        value, *lengths = inputs
        check_lengths(self, [self.value], [value], empty=True)
        shape = tuple(map(as_int, lengths))
        if any(length < 0 for length in shape):
            raise ValueError(f"{self} cannot make an array with a negative length: {shape}")
        missing = len(shape) - value.ndim
        if any(length not in (1, target) for length, target in zip(value.shape, shape[missing:], strict=True)):
            raise ValueError(f"could not broadcast a value of shape {value.shape} to shape {shape[missing:]}")
        out = output_array(outputs[0], self.context, shape, value.dtype)
        self._copying.launch(kernels, self.context, shape, [padded(value, len(shape)), out])


@dataclass(eq=False)
class Count(Operation):
    """Evenly spaced numbers, as ``numpy.arange`` returns them. The inputs are host scalars: start, stop and step."""

    dtype: str

    def kernels(self) -> list[Kernel]:
        value = f"{write_w(self.dtype)}(start + i * step)"
        if np.dtype(self.dtype).kind in "iu":
            wide = unsigned(self.dtype)
            value = f"({ctype(self.dtype)})(({wide})start + ({wide})i * ({wide})step)"
        return [Kernel(ROUND_EACH_STEP + typed(functions("creation.cl")["count"], self.dtype, VALUE=value))]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        start, stop, step = [x.item() for x in inputs]
        n = max(0, math.ceil((stop - start) / step))
        out = output_array(outputs[0], self.context, (n,), self.dtype)
        kind = np.dtype(work_dtype(self.dtype)).type
        # NumPy rounds the first two numbers to the dtype, and uses their difference as the step.
        first = np.array([start]).astype(kind)
        with np.errstate(over="ignore"):
            distance = np.array([start + step]).astype(kind) - first
        kernels["count"].scall(n, n, first[0], distance[0], out)


@dataclass(eq=False)
class Triangle(Operation):
    """A matrix with ones on and below a diagonal, and zeros above it.

    The inputs are the numbers of rows and columns, and the diagonal's offset to the right of the main diagonal.
    """

    dtype: str

    def kernels(self) -> list[Kernel]:
        return [Kernel(typed(functions("creation.cl")["triangle"], self.dtype))]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        rows, columns, k = [int(x) for x in inputs]
        out = output_array(outputs[0], self.context, (rows, columns), self.dtype)
        kernels["triangle"].scall(out.size, out.size, columns, k, out)


@dataclass(eq=False)
class InOrder(Copying):
    """The input itself if it is C-contiguous, else a contiguous copy."""

    #: Number of leading axes, such as the steps of a loop, that may have any strides.
    leading: int = 0

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        (x,) = inputs
        # Do not overwrite the previous output: it may be the input of an earlier call.
        outputs[0][0] = x if is_contiguous(x, self.leading) else copied(x, self._copying, kernels, self.context)


@dataclass(eq=False)
class Eye(Operation):
    """A matrix of zeros with ones on a diagonal.

    The inputs are host integers: the numbers of rows and of columns (None for a square matrix), and the diagonal's
    offset to the right of the main diagonal.
    """

    dtype: str

    def __post_init__(self) -> None:
        one = f"({c_type(self.dtype)})(1, 0)" if is_complex(self.dtype) else "1"
        self._ones = ElementKernels(ElementCode((), (Operand.of("o0", self.dtype),), f"o0 = {one};", 1, "eye"))

    def kernels(self) -> list[Kernel]:
        return self._ones.kernels()

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        n, m, k = inputs
        matrix = output_zeros(outputs[0], self.context, (int(n), int(n if m is None else m)), self.dtype)
        along = diagonal(matrix, int(k), 0, 1)
        self._ones.launch(kernels, self.context, along.shape, [along])


@dataclass(eq=False)
class AroundDiagonal(Copying):
    """An array of zeros with the input's last axis on the diagonal of two new axes."""

    #: Offset of the diagonal to the right of the main diagonal.
    offset: int = 0
    #: Positions of the new axes in the output.
    axis1: int = 0
    axis2: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._axes = list(range(self.x.ndim - 1))
        for new, axis in enumerate(sorted((self.axis1, self.axis2)), self.x.ndim - 1):
            self._axes.insert(axis, new)

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        (x,) = inputs
        side = x.shape[-1] + abs(self.offset)
        shape = [(*x.shape[:-1], side, side)[axis] for axis in self._axes]
        out = output_zeros(outputs[0], self.context, shape, x.dtype)
        # The new axes are the last two until they are permuted.
        rows, columns = self._axes.index(x.ndim - 1), self._axes.index(x.ndim)
        along = diagonal(out, self.offset, rows, columns)
        self._copying.launch(kernels, self.context, x.shape, [x, along])


@dataclass(eq=False)
class FillDiagonal(Operation):
    """A copy of an array with its main diagonal filled with a number; the second input is the number, as a 0-d array.

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
        """Return the index of the diagonal's first element, the step between its elements, and their number."""
        if len(shape) == 2:
            return 0, shape[1] + 1, smallest(*shape)
        if any(length != shape[0] for length in shape):
            raise ValueError(f"{self}: all dimensions of the array must be of equal length, not {tuple(shape)}")
        step = 1
        for length in shape[1:]:
            step = step * length + 1
        return 0, step, shape[0]


class FillDiagonalOffset(FillDiagonal):
    """A copy of a matrix with a diagonal filled with a number.

    The third input is the diagonal's offset to the right of the main diagonal.
    """

    def _elements(self, shape: Sequence[int], *offset: int) -> tuple[int, int, int]:
        (right,) = offset
        rows, columns = shape
        start = right if right >= 0 else -right * columns
        count = smallest(smallest(rows, columns), columns - right if right >= 0 else rows + right)
        # If the offset is outside of the matrix, `end` may be a negative index; the host's code uses the same slice.
        end = start + (columns + 1) * count
        first, number, step = part_of(rows * columns, slice(start, end, columns + 1))
        return first, step, number

"""Operations that create arrays: full, arange, tri, and C-contiguous copies. Lengths are host integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optdb.codegen.elements import Copying, ElementKernels, copied
from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.layout import is_contiguous, view
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, check_lengths, output_array
from optdb.codegen.scalars.types import unsigned
from optdb.codegen.source import ROUND_EACH_STEP, functions, typed, work_dtype, write_w
from optdb.runtime.sizes import as_int


@dataclass(eq=False)
class Fill(Operation):
    """An array filled with a value, which is broadcast; the inputs are the value (a device array) and axis lengths."""

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
        item = value.dtype.itemsize
        value = view(value, (1,) * missing + value.shape, (item,) * missing + value.strides)
        self._copying.launch(kernels, self.context, shape, [value, out])


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
        # NumPy rounds the first two numbers to the dtype, then repeats their difference.
        first = np.array([start]).astype(kind)
        with np.errstate(over="ignore"):
            distance = np.array([start + step]).astype(kind) - first
        kernels["count"].scall(n, n, first[0], distance[0], out)


@dataclass(eq=False)
class Triangle(Operation):
    """A matrix of ones on and below a diagonal, and zeros above it.

    The inputs are the numbers of rows and columns, and the offset of the diagonal to the right of the main diagonal.
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
        # Do not reuse the previous output: it may be an earlier input.
        outputs[0][0] = x if is_contiguous(x, self.leading) else copied(x, self._copying, kernels, self.context)

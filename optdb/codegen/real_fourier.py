"""Fourier transforms of real arrays over their last axes, and their inverses.

Inputs and outputs store complex numbers as pairs along a last axis. Lengths come from the host: longer axes are
truncated, and shorter ones are padded with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from optdb.codegen.elements import ElementKernels, copied
from optdb.codegen.elementwise import ElementCode, Operand
from optdb.codegen.fourier import BACKWARD, FORWARD, complex_dtype, fourier_kernels, mirrored, transform_rows
from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.layout import is_contiguous, view
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array, output_zeros
from optdb.codegen.scalars.types import c_type
from optdb.codegen.views import axis_last
from optdb.runtime.arrays import Array, empty


@dataclass(eq=False)
class RealFourier(Operation):
    """The Fourier transform of a real array over its last axes, without the redundant coefficients.

    The inputs are the array, and a host vector with the lengths of the transformed axes.
    """

    #: Whether the input, rather than the output, consists of complex pairs.
    inverse: ClassVar[bool] = False

    x: ArraySpec

    def __post_init__(self) -> None:
        dtype, ndim = complex_dtype(self.context), self.x.ndim - self.inverse
        one, pair = [self.x.dtype], [self.x.dtype] * 2
        self._reading = _reading(pair if self.inverse else one, dtype, ndim)
        self._writing = _writing(one if self.inverse else pair, dtype, ndim)
        self._moving = ElementKernels.copying(dtype, ndim, "move")

    def kernels(self) -> list[Kernel]:
        kernels = fourier_kernels(complex_dtype(self.context), mirroring=self.inverse)
        return [*kernels, *self._reading.kernels(), *self._writing.kernels(), *self._moving.kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, lengths = inputs[0], self._checked(inputs[1], inputs[0].ndim)
        whole = (*x.shape[: x.ndim - len(lengths)], *lengths)
        shape = (*whole[:-1], lengths[-1] // 2 + 1)
        out = output_array(outputs[0], self.context, (*shape, 2), x.dtype)
        if not out.size:
            return
        z = self._filled(kernels, [x], whole)
        z = transform_rows(kernels, self.context, z, FORWARD)
        z = view(z, shape, z.strides)
        for axis in range(x.ndim - len(lengths), x.ndim - 1):
            z = self._along(z, axis, kernels, FORWARD)
        self._writing.launch(kernels, self.context, shape, [z, *_pair(out)])

    def _checked(self, given: Any, ndim: int) -> list[int]:
        lengths = [int(length) for length in given]
        if not 1 <= len(lengths) <= ndim:
            raise ValueError(f"{self} transforms 1 to {ndim} axes of this array, not {len(lengths)}")
        for length in lengths:
            if length < 1:
                raise ValueError(f"Invalid number of FFT data points ({length}) specified.")
        return lengths

    def _filled(self, kernels: Kernels, parts: Sequence[Array], shape: Sequence[int]) -> Array:
        """Return the input as a complex array with a given shape, truncated or padded with zeros."""
        dtype = complex_dtype(self.context)
        overlap = [min(length, target) for length, target in zip(parts[0].shape, shape, strict=True)]
        missing = any(length < target for length, target in zip(overlap, shape))
        z = output_zeros([None], self.context, shape, dtype) if missing else empty(self.context, tuple(shape), dtype)
        cut = [view(x, overlap, x.strides) for x in (*parts, z)]
        self._reading.launch(kernels, self.context, overlap, cut)
        return z

    def _along(self, z: Array, axis: int, kernels: Kernels, direction: int) -> Array:
        rows = transform_rows(kernels, self.context, self._in_order(axis_last(z, axis), kernels), direction)
        order = [*range(axis), rows.ndim - 1, *range(axis, rows.ndim - 1)]
        return view(rows, [rows.shape[d] for d in order], [rows.strides[d] for d in order])

    def _in_order(self, z: Array, kernels: Kernels) -> Array:
        return z if is_contiguous(z) else copied(z, self._moving, kernels, self.context)


class InverseRealFourier(RealFourier):
    """The unnormalized inverse of `RealFourier`; the array's last axis has pairs of real and imaginary parts."""

    inverse = True

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, ndim = inputs[0], inputs[0].ndim - 1
        lengths = self._checked(inputs[1], ndim)
        if x.shape[-1] < 2:
            raise IndexError(f"{self} takes pairs of real and imaginary parts, not an array of shape {x.shape}")
        shape = (*x.shape[: ndim - len(lengths)], *lengths)
        out = output_array(outputs[0], self.context, shape, x.dtype)
        if not out.size:
            return
        z = self._filled(kernels, _pair(x), (*shape[:-1], lengths[-1] // 2 + 1))
        for axis in range(ndim - len(lengths), ndim - 1):
            z = self._along(z, axis, kernels, BACKWARD)
        z = mirrored(kernels, self.context, self._in_order(z, kernels), lengths[-1])
        z = transform_rows(kernels, self.context, z, BACKWARD)
        self._writing.launch(kernels, self.context, shape, [z, out])


def _reading(dtypes: Sequence[str], dtype: str, ndim: int) -> ElementKernels:
    """Return the kernels that convert real numbers, or pairs, to complex numbers."""
    real = "ga_double" if dtype == "complex128" else "ga_float"
    parts = [f"({real})i{i}" for i in range(len(dtypes))] + ["0"] * (2 - len(dtypes))
    inputs = tuple([Operand.of(f"i{i}", kind) for i, kind in enumerate(dtypes)])
    outputs = (Operand("o0", ctype(dtype), ctype(dtype)),)
    return ElementKernels(ElementCode(inputs, outputs, f"o0 = ({ctype(dtype)})({', '.join(parts)});", ndim, "read"))


def _writing(dtypes: Sequence[str], dtype: str, ndim: int) -> ElementKernels:
    """Return the kernels that split complex numbers into real and imaginary parts, or extract the real parts."""
    inputs = (Operand("i0", ctype(dtype), ctype(dtype)),)
    outputs = tuple([Operand.of(f"o{i}", kind) for i, kind in enumerate(dtypes)])
    statements = "\n".join(f"o{i} = ({c_type(kind)})i0.{'xy'[i]};" for i, kind in enumerate(dtypes))
    return ElementKernels(ElementCode(inputs, outputs, statements, ndim, "write"))


def _pair(x: Array) -> list[Array]:
    """Return views of the real and of the imaginary parts."""
    return [view(x, x.shape[:-1], x.strides[:-1], part * x.strides[-1]) for part in (0, 1)]

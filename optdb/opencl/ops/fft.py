"""Fourier transforms of real arrays over their last axes, and back.

Inputs and outputs hold complex numbers as pairs along a last axis. The kernels compute with
complex numbers, in double precision where the device has it, as on the host. An axis that is
transformed is moved to the end, so that its elements lie side by side, see
`optdb.codegen.fourier`. Lengths come from the host: longer axes are cut, and shorter ones are
filled with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optdb.codegen.elements import ElementKernels, copied
from optdb.codegen.elementwise import ElementCode, Operand
from optdb.codegen.fourier import BACKWARD, FORWARD, complex_dtype, fourier_kernels, mirrored, transform_rows
from optdb.codegen.layout import is_contiguous, view
from optdb.codegen.scalars.types import c_type
from optdb.codegen.views import axis_last
from optdb.host.api.graph import Apply
from optdb.host.api.ops import IRFFTOp, RFFTOp
from optdb.opencl.kernels import Context, Kernel, Kernels, OpenCLKernelBase, Outputs, ctype, output_array, output_zeros
from optdb.opencl.ops.counterpart import Counterpart
from optdb.runtime.arrays import Array, empty


class _Fourier(Counterpart, OpenCLKernelBase):
    """The base of both ops: the array is on the device, the lengths are on the host."""

    device_inputs = slice(0, 1)

    def elements(self, node: Apply) -> list[ElementKernels]:
        """Return the kernels that read the input, that write the output, and that copy in between."""
        x, dtype = node.inputs[0].type, complex_dtype(self.get_context(node))
        read, written, ndim = [x.dtype], [x.dtype] * 2, x.ndim
        if self.host is IRFFTOp:
            read, written, ndim = written, read, x.ndim - 1
        copying = ElementKernels.copying(dtype, ndim, "move")
        return [_reading(read, dtype, ndim), _writing(written, dtype, ndim), copying]

    def gpu_kernels(self, node: Apply, name: str) -> list[Kernel]:
        kernels = fourier_kernels(complex_dtype(self.get_context(node)), mirroring=self.host is IRFFTOp)
        return kernels + [kernel for elements in self.elements(node) for kernel in elements.kernels()]


class OpenCLRFFTOp(_Fourier, RFFTOp):
    """The Fourier transform of a real array over its last axes: the coefficients that are not mirrored."""

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, lengths = inputs[0], _checked(self, inputs[1], inputs[0].ndim)
        whole = (*x.shape[: x.ndim - len(lengths)], *lengths)
        shape = (*whole[:-1], lengths[-1] // 2 + 1)
        out = output_array(outputs[0], context, (*shape, 2), x.dtype)
        if not out.size:
            return
        reading, writing, moving = self.elements(node)
        z = _filled(reading, kernels, context, [x], whole)
        z = transform_rows(kernels, context, z, FORWARD)
        z = view(z, shape, z.strides)
        for axis in range(x.ndim - len(lengths), x.ndim - 1):
            z = _along(z, axis, moving, kernels, context, FORWARD)
        writing.launch(kernels, context, shape, [z, *_pair(out)])


class OpenCLIRFFTOp(_Fourier, IRFFTOp):
    """The real array of which the Fourier transform over the last axes is given, times the product of lengths."""

    def run(self, node: Apply, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels, context: Context) -> None:
        x, ndim = inputs[0], inputs[0].ndim - 1
        lengths = _checked(self, inputs[1], ndim)
        if x.shape[-1] < 2:
            raise IndexError(f"{self} takes pairs of real and imaginary parts, not an array of shape {x.shape}")
        shape = (*x.shape[: ndim - len(lengths)], *lengths)
        out = output_array(outputs[0], context, shape, x.dtype)
        if not out.size:
            return
        reading, writing, moving = self.elements(node)
        z = _filled(reading, kernels, context, _pair(x), (*shape[:-1], lengths[-1] // 2 + 1))
        for axis in range(ndim - len(lengths), ndim - 1):
            z = _along(z, axis, moving, kernels, context, BACKWARD)
        z = mirrored(kernels, context, _in_order(z, moving, kernels, context), lengths[-1])
        z = transform_rows(kernels, context, z, BACKWARD)
        writing.launch(kernels, context, shape, [z, out])


def _checked(op: Any, given: Any, ndim: int) -> list[int]:
    lengths = [int(length) for length in given]
    if not 1 <= len(lengths) <= ndim:
        raise ValueError(f"{op} transforms 1 to {ndim} axes of this array, not {len(lengths)}")
    for length in lengths:
        if length < 1:
            raise ValueError(f"Invalid number of FFT data points ({length}) specified.")
    return lengths


def _reading(dtypes: Sequence[str], dtype: str, ndim: int) -> ElementKernels:
    """Return the kernels that make complex numbers of real ones, or of pairs."""
    real = "ga_double" if dtype == "complex128" else "ga_float"
    parts = [f"({real})i{i}" for i in range(len(dtypes))] + ["0"] * (2 - len(dtypes))
    inputs = tuple([Operand.of(f"i{i}", kind) for i, kind in enumerate(dtypes)])
    outputs = (Operand("o0", ctype(dtype), ctype(dtype)),)
    return ElementKernels(ElementCode(inputs, outputs, f"o0 = ({ctype(dtype)})({', '.join(parts)});", ndim, "read"))


def _writing(dtypes: Sequence[str], dtype: str, ndim: int) -> ElementKernels:
    """Return the kernels that take complex numbers apart, into real and imaginary parts or into the former alone."""
    inputs = (Operand("i0", ctype(dtype), ctype(dtype)),)
    outputs = tuple([Operand.of(f"o{i}", kind) for i, kind in enumerate(dtypes)])
    statements = "\n".join(f"o{i} = ({c_type(kind)})i0.{'xy'[i]};" for i, kind in enumerate(dtypes))
    return ElementKernels(ElementCode(inputs, outputs, statements, ndim, "write"))


def _pair(x: Array) -> list[Array]:
    """Return views of the real and of the imaginary parts."""
    return [view(x, x.shape[:-1], x.strides[:-1], part * x.strides[-1]) for part in (0, 1)]


def _filled(
    reading: ElementKernels, kernels: Kernels, context: Context, parts: Sequence[Array], shape: Sequence[int]
) -> Array:
    """Return a complex array of a shape: the input, cut or padded with zeros."""
    dtype = complex_dtype(context)
    overlap = [min(length, target) for length, target in zip(parts[0].shape, shape, strict=True)]
    missing = any(length < target for length, target in zip(overlap, shape))
    z = output_zeros([None], context, shape, dtype) if missing else empty(context, tuple(shape), dtype)
    cut = [view(x, overlap, x.strides) for x in (*parts, z)]
    reading.launch(kernels, context, overlap, cut)
    return z


def _along(z: Array, axis: int, moving: ElementKernels, kernels: Kernels, context: Context, way: int) -> Array:
    """Transform along an axis; return a view with the axes in the order they had."""
    rows = transform_rows(kernels, context, _in_order(axis_last(z, axis), moving, kernels, context), way)
    order = [*range(axis), rows.ndim - 1, *range(axis, rows.ndim - 1)]
    return view(rows, [rows.shape[d] for d in order], [rows.strides[d] for d in order])


def _in_order(z: Array, moving: ElementKernels, kernels: Kernels, context: Context) -> Array:
    return z if is_contiguous(z) else copied(z, moving, kernels, context)

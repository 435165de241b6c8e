"""Fourier transforms of real arrays over their last axes, and the inverse transforms, by transforming complex rows.

A length with small prime factors takes one pass per factor (a Stockham FFT): radix-4 passes come first, and passes for
other factors evaluate the definition of the transform. Any other length is transformed by a convolution. Twiddle
factors are computed on the host in extended precision. Sources: J. Cooley and J. Tukey, An algorithm for the machine
calculation of complex Fourier series (1965); L. Bluestein, A linear filtering approach to the computation of the
discrete Fourier transform (1970).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from optdb.codegen.elements import ElementKernels, copied
from optdb.codegen.elementwise import ElementCode, Operand
from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.layout import is_contiguous, launch_chunks, view
from optdb.codegen.operation import ArraySpec, Kernels, Operation, Outputs, output_array, output_zeros
from optdb.codegen.scalars.types import c_type
from optdb.codegen.scratch import tables
from optdb.codegen.source import filled, functions
from optdb.codegen.views import axis_last
from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.arrays import Array, empty
from optdb.runtime.context import Context

FORWARD, BACKWARD = -1, 1

#: Lengths with a larger prime factor are transformed by a convolution.
LARGEST_FACTOR = 31


def complex_dtype(context: Context) -> str:
    """Return the dtype of transforms in a context: the most precise dtype that the context supports."""
    return "complex128" if context.profile.float64 else "complex64"


def _factors(n: int) -> list[int]:
    """Return the factors of `n`: as many fours as possible, then primes."""
    factors = []
    for r in itertools.chain((4, 2), itertools.count(3, 2)):
        while n % r == 0:
            factors.append(r)
            n //= r
        if r % 2 and r * r > n:
            break
    return [*factors, n] if n > 1 else factors


def _roots(k: HostArray, n: int) -> HostArray:
    """Return ``exp(-2 pi i k / n)``."""
    angle = 2 * np.longdouble("3.14159265358979323846264338327950288") * (k % n) / n
    roots: HostArray = np.cos(angle) - 1j * np.sin(angle)
    return roots


def _chirp(n: int, direction: int) -> HostArray:
    """Return ``exp(direction pi i k^2 / n)``."""
    # Python integers are used because the squares may exceed 64 bits.
    k = np.arange(n, dtype=object)
    roots = _roots((k * k % (2 * n)).astype(np.int64), 2 * n)
    return roots if direction < 0 else roots.conj()


def _filter(n: int, m: int, direction: int) -> HostArray:
    """Return the transform of the conjugate chirp, divided by the length `m`."""
    chirp = _chirp(n, direction).conj().astype(np.complex128)
    around = np.zeros(m, np.complex128)
    around[:n] = chirp
    around[m - n + 1 :] = chirp[:0:-1]
    return np.fft.fft(around) / m


@dataclass(eq=False)
class RealFourier(Operation):
    """The Fourier transform of a real array over its last axes, without the redundant coefficients.

    The inputs are the array, and a host vector with the lengths of the transformed axes: longer axes are truncated, and
    shorter ones are padded with zeros. Complex numbers are pairs along an additional last axis.
    """

    #: Whether the input consists of complex pairs, rather than the output.
    inverse: ClassVar[bool] = False

    x: ArraySpec

    def __post_init__(self) -> None:
        dtype, ndim = complex_dtype(self.context), self.x.ndim - self.inverse
        one, pair = [self.x.dtype], [self.x.dtype] * 2
        self._reading = _reading(pair if self.inverse else one, dtype, ndim)
        self._writing = _writing(one if self.inverse else pair, dtype, ndim)
        self._moving = ElementKernels.copying(dtype, ndim, "move")

    def kernels(self) -> list[Kernel]:
        code = functions("fourier.cl")
        text = "".join(code[name] for name in code if self.inverse or name != "fft_mirror")
        kernels = Kernel.all_of(filled(text, T=ctype(complex_dtype(self.context))))
        return [*kernels, *self._reading.kernels(), *self._writing.kernels(), *self._moving.kernels()]

    def run(self, inputs: Sequence[Any], outputs: Outputs, kernels: Kernels) -> None:
        x, lengths = inputs[0], self._checked(inputs[1], inputs[0].ndim)
        whole = (*x.shape[: x.ndim - len(lengths)], *lengths)
        shape = (*whole[:-1], lengths[-1] // 2 + 1)
        out = output_array(outputs[0], self.context, (*shape, 2), x.dtype)
        if not out.size:
            return
        z = self._filled(kernels, [x], whole)
        z = self._transformed(kernels, z, FORWARD)
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
        dtype = complex_dtype(self.context)
        overlap = [min(length, target) for length, target in zip(parts[0].shape, shape, strict=True)]
        missing = any(length < target for length, target in zip(overlap, shape))
        z = output_zeros([None], self.context, shape, dtype) if missing else empty(self.context, tuple(shape), dtype)
        cut = [view(x, overlap, x.strides) for x in (*parts, z)]
        self._reading.launch(kernels, self.context, overlap, cut)
        return z

    def _along(self, z: Array, axis: int, kernels: Kernels, direction: int) -> Array:
        rows = self._transformed(kernels, self._in_order(axis_last(z, axis), kernels), direction)
        order = [*range(axis), rows.ndim - 1, *range(axis, rows.ndim - 1)]
        return view(rows, [rows.shape[d] for d in order], [rows.strides[d] for d in order])

    def _in_order(self, z: Array, kernels: Kernels) -> Array:
        return z if is_contiguous(z) else copied(z, self._moving, kernels, self.context)

    def _transformed(self, kernels: Kernels, x: Array, direction: int) -> Array:
        """Return the unnormalized transforms of the rows of a complex, C-contiguous array, which is overwritten."""
        factors = _factors(x.shape[-1])
        if factors and max(factors) > LARGEST_FACTOR:
            return self._convolved(kernels, x, direction)
        return self._passes(kernels, x, factors, direction)

    def _passes(self, kernels: Kernels, x: Array, factors: list[int], direction: int) -> Array:
        n = x.shape[-1]
        if n == 1:
            return x
        roots = self._table(("roots", n), x.dtype, lambda: _roots(np.arange(n), n))
        other = empty(self.context, x.shape, x.dtype)
        done = 1
        for r in factors:
            if r == 4:
                launch_chunks(kernels["fft_four"], self.context, x.size // 4, n, done, direction, x, other, roots)
            else:
                launch_chunks(kernels["fft_factor"], self.context, x.size, n, done, r, direction, x, other, roots)
            x, other = other, x
            done *= r
        return x

    def _convolved(self, kernels: Kernels, x: Array, direction: int) -> Array:
        """Transform rows of any length with Bluestein's algorithm, a convolution with a chirp."""
        n, times = x.shape[-1], kernels["fft_times"]
        m = 1 << (2 * n - 2).bit_length()
        rows = x.size // n
        chirp = self._table(("chirp", n, direction), x.dtype, lambda: _chirp(n, direction))
        filtered = self._table(("filter", n, direction), x.dtype, lambda: _filter(n, m, direction))
        padded = empty(self.context, (rows, m), x.dtype)
        launch_chunks(times, self.context, padded.size, n, m, n, x, padded, chirp)
        spectrum = self._passes(kernels, padded, _factors(m), FORWARD)
        product = empty(self.context, (rows, m), x.dtype)
        launch_chunks(times, self.context, product.size, m, m, m, spectrum, product, filtered)
        back = self._passes(kernels, product, _factors(m), BACKWARD)
        launch_chunks(times, self.context, x.size, m, n, n, back, x, chirp)
        return x

    def _table(self, key: tuple[Hashable, ...], dtype: AnyDtype, make: Callable[[], HostArray]) -> Array:
        table: Array
        (table,) = tables(self.context, (*key, dtype), lambda: [make().astype(dtype)])
        return table


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
        z, whole = self._in_order(z, kernels), empty(self.context, shape, z.dtype)
        launch_chunks(kernels["fft_mirror"], self.context, whole.size, z.shape[-1], lengths[-1], z, whole)
        z = self._transformed(kernels, whole, BACKWARD)
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
    return [view(x, x.shape[:-1], x.strides[:-1], part * x.strides[-1]) for part in (0, 1)]

"""Fourier transforms of the rows of a complex array, of any length.

A length with small prime factors takes one pass per factor (a Stockham FFT): radix 4 first, other factors by
definition. Any other length is transformed by a convolution. Twiddle factors are computed on the host in extended
precision. Results are unnormalized. Sources: J. Cooley and J. Tukey, An algorithm for the machine calculation of
complex Fourier series (1965); L. Bluestein, A linear filtering approach to the computation of the discrete Fourier
transform (1970).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from optdb.codegen.kernels import CompiledKernel, Kernel, ctype
from optdb.codegen.layout import launch_chunks
from optdb.codegen.scratch import tables
from optdb.codegen.source import filled, functions
from optdb.numpy_types import AnyDtype, HostArray
from optdb.runtime.arrays import Array, empty

if TYPE_CHECKING:
    from optdb.runtime.context import Context

FORWARD, BACKWARD = -1, 1

#: Lengths with a larger prime factor are transformed by a convolution.
LARGEST_FACTOR = 31


def complex_dtype(context: Context) -> str:
    """Return the dtype of transforms in a context: the most precise one that it supports."""
    return "complex128" if context.profile.float64 else "complex64"


def fourier_kernels(dtype: str, mirroring: bool = False) -> list[Kernel]:
    """Return the kernels of `transform_rows` for a complex dtype and, with `mirroring`, that of `mirrored`."""
    code = functions("fourier.cl")
    text = "".join(code[name] for name in code if mirroring or name != "fft_mirror")
    return Kernel.all_of(filled(text, T=ctype(dtype)))


def transform_rows(kernels: Mapping[str, CompiledKernel], context: Context, x: Array, direction: int) -> Array:
    """Return the unnormalized Fourier transforms of the rows of an array; `direction` is FORWARD or BACKWARD.

    The array is complex, C-contiguous and not empty, and is overwritten.
    """
    n = x.shape[-1]
    factors = _factors(n)
    if factors and max(factors) > LARGEST_FACTOR:
        return _convolved(kernels, context, x, direction)
    return _passes(kernels, context, x, factors, direction)


def mirrored(kernels: Mapping[str, CompiledKernel], context: Context, x: Array, n: int) -> Array:
    """Return all `n` coefficients of real rows; the rows of the C-contiguous `x` have the nonredundant ones."""
    result = empty(context, (*x.shape[:-1], n), x.dtype)
    launch_chunks(kernels["fft_mirror"], context, result.size, x.shape[-1], n, x, result)
    return result


def _passes(
    kernels: Mapping[str, CompiledKernel], context: Context, x: Array, factors: list[int], direction: int
) -> Array:
    n = x.shape[-1]
    if n == 1:
        return x
    roots = _table(context, ("roots", n), x.dtype, lambda: _roots(np.arange(n), n))
    other = empty(context, x.shape, x.dtype)
    done = 1
    for r in factors:
        if r == 4:
            launch_chunks(kernels["fft_four"], context, x.size // 4, n, done, direction, x, other, roots)
        else:
            launch_chunks(kernels["fft_factor"], context, x.size, n, done, r, direction, x, other, roots)
        x, other = other, x
        done *= r
    return x


def _convolved(kernels: Mapping[str, CompiledKernel], context: Context, x: Array, direction: int) -> Array:
    """Transform rows of any length with Bluestein's algorithm, a convolution with a chirp."""
    n = x.shape[-1]
    m = 1 << (2 * n - 2).bit_length()
    rows = x.size // n
    chirp = _table(context, ("chirp", n, direction), x.dtype, lambda: _chirp(n, direction))
    filtered = _table(context, ("filter", n, direction), x.dtype, lambda: _filter(n, m, direction))
    padded = empty(context, (rows, m), x.dtype)
    launch_chunks(kernels["fft_times"], context, padded.size, n, m, n, x, padded, chirp)
    spectrum = _passes(kernels, context, padded, _factors(m), FORWARD)
    product = empty(context, (rows, m), x.dtype)
    launch_chunks(kernels["fft_times"], context, product.size, m, m, m, spectrum, product, filtered)
    back = _passes(kernels, context, product, _factors(m), BACKWARD)
    launch_chunks(kernels["fft_times"], context, x.size, m, n, n, back, x, chirp)
    return x


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


def _table(context: Context, key: tuple[Hashable, ...], dtype: AnyDtype, make: Callable[[], HostArray]) -> Array:
    table: Array
    (table,) = tables(context, (*key, dtype), lambda: [make().astype(dtype)])
    return table


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

"""Fourier transforms of the rows of a complex array, of any length.

A length whose prime factors are small is transformed by passes, one for each factor: a
pass reads one buffer and writes the other, in which its results are in order already.
Fours go first, four elements at a time; other factors by their definition. Any other
length is transformed by a convolution, which takes three transforms of a power of two.

Sines and cosines are worked out on the host, in more digits than are kept, and stay on
the device from then on. Nothing is divided by the length: that is for callers.

References
----------
J. Cooley and J. Tukey, An algorithm for the machine calculation of complex Fourier series
(1965), in the order of T. Stockham's; L. Bluestein, A linear filtering approach to the
computation of the discrete Fourier transform (1970).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from optdb.codegen.kernels import ARRAY, SIZE, SSIZE, CompiledKernel, Kernel, ctype
from optdb.codegen.layout import launch_chunks
from optdb.runtime.arrays import Array, empty, from_host

if TYPE_CHECKING:
    from optdb.runtime.context import Context

FORWARD, BACKWARD = -1, 1

#: Lengths with a larger prime factor are transformed by a convolution.
LARGEST_FACTOR = 31
#: So many tables are kept for each context.
KEPT = 64

_tables: WeakKeyDictionary[Context, dict[tuple, Array]] = WeakKeyDictionary()

_CODE = """
typedef {complex} fft_c;
static inline fft_c fft_mul(fft_c a, fft_c b) {{ return (fft_c)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }}

/* The table goes forward: e to the -2 pi i k / n. */
#define FFT_ROOT(k) (fft_c)(w[k].x, way < 0 ? w[k].y : -w[k].y)
#define FFT_POINTERS \\
    x = (GLOBAL_MEM fft_c *)((GLOBAL_MEM char *)x + x_off); \\
    z = (GLOBAL_MEM fft_c *)((GLOBAL_MEM char *)z + z_off); \\
    w = (GLOBAL_MEM fft_c *)((GLOBAL_MEM char *)w + w_off);
#define FFT_ARRAYS GLOBAL_MEM fft_c *x, ga_size x_off, GLOBAL_MEM fft_c *z, ga_size z_off, \\
    GLOBAL_MEM fft_c *w, ga_size w_off

/* A pass for factor 4, behind passes for factors that make s. */
KERNEL void fft_four(ga_size total, ga_size each, ga_size n, ga_size s, ga_ssize way, FFT_ARRAYS)
{{
FFT_POINTERS
const ga_size quarter = n / 4, m = quarter / s;
ga_size i = get_global_id(0) * each;
const ga_size stop = min(i + each, total);
ga_size q = i % s, p = i / s % m, row = i / quarter;
for (; i < stop; ++i) {{
    const GLOBAL_MEM fft_c *from = x + row * n + p * s + q;
    GLOBAL_MEM fft_c *to = z + row * n + p * s * 4 + q;
    const fft_c a = from[0], b = from[quarter], c = from[2 * quarter], d = from[3 * quarter];
    const fft_c even = a + c, odd = a - c, sum = b + d, turn = b - d;
    const fft_c turned = way < 0 ? (fft_c)(turn.y, -turn.x) : (fft_c)(-turn.y, turn.x);
    to[0] = even + sum;
    to[s] = fft_mul(odd + turned, FFT_ROOT(p * s));
    to[2 * s] = fft_mul(even - sum, FFT_ROOT(2 * p * s));
    to[3 * s] = fft_mul(odd - turned, FFT_ROOT(3 * p * s));
    if (++q == s) {{
        q = 0;
        if (++p == m) {{
            p = 0;
            ++row;
        }}
    }}
}}
}}

/* The same for any factor r, one result at a time. */
KERNEL void fft_factor(ga_size total, ga_size each, ga_size n, ga_size s, ga_size r, ga_ssize way, FFT_ARRAYS)
{{
FFT_POINTERS
const ga_size part = n / r, m = part / s;
ga_size i = get_global_id(0) * each;
const ga_size stop = min(i + each, total);
ga_size q = i % s, k = i / s % r, p = i / (s * r) % m, row = i / n;
for (; i < stop; ++i) {{
    const GLOBAL_MEM fft_c *from = x + row * n + p * s + q;
    fft_c sum = from[0];
    ga_size turn = 0;
    for (ga_size t = 1; t < r; ++t) {{
        turn += k;
        turn -= turn >= r ? r : 0;
        sum += fft_mul(from[t * part], FFT_ROOT(turn * part));
    }}
    z[i] = fft_mul(sum, FFT_ROOT(p * k * s));
    if (++q == s) {{
        q = 0;
        if (++k == r) {{
            k = 0;
            if (++p == m) {{
                p = 0;
                ++row;
            }}
        }}
    }}
}}
}}

/* Rows of x times w, as far as x goes; then zeros. */
KERNEL void fft_times(ga_size total, ga_size each, ga_size nx, ga_size nz, ga_size limit, FFT_ARRAYS)
{{
FFT_POINTERS
ga_size i = get_global_id(0) * each;
const ga_size stop = min(i + each, total);
for (; i < stop; ++i) {{
    const ga_size row = i / nz, j = i % nz;
    z[i] = j < limit ? fft_mul(x[row * nx + j], w[j]) : (fft_c)(0, 0);
}}
}}
"""

_MIRROR = """
/* All n coefficients of a real row, from the h first ones. */
OUTLINED_KERNEL void fft_mirror(ga_size total, ga_size each, ga_size h, ga_size n, GLOBAL_MEM fft_c *x, ga_size x_off,
    GLOBAL_MEM fft_c *z, ga_size z_off)
{{
x = (GLOBAL_MEM fft_c *)((GLOBAL_MEM char *)x + x_off);
z = (GLOBAL_MEM fft_c *)((GLOBAL_MEM char *)z + z_off);
ga_size i = get_global_id(0) * each;
const ga_size stop = min(i + each, total);
for (; i < stop; ++i) {{
    const ga_size row = i / n, j = i % n;
    const ga_size k = j <= n / 2 ? j : n - j;
    const fft_c there = k < h ? x[row * h + k] : (fft_c)(0, 0);
    z[i] = (fft_c)(there.x, k == 0 || 2 * k == n ? 0 : k == j ? there.y : -there.y);
}}
}}
"""


def complex_dtype(context: Context) -> str:
    """Return the dtype that a context transforms in: the most exact one that it has."""
    return "complex128" if context.profile.float64 else "complex64"


def fourier_kernels(dtype: str, mirroring: bool = False) -> list[Kernel]:
    """Return the kernels that `transform_rows` launches for arrays of a complex dtype, and `mirrored` if wanted."""
    code = (_CODE + _MIRROR * mirroring).format(complex=ctype(dtype))
    mirror = [Kernel(code, "fft_mirror", [SIZE, SIZE, SIZE, SIZE, ARRAY, ARRAY], Kernel.get_flags(dtype))]
    flags = Kernel.get_flags(dtype)
    arrays = [ARRAY, ARRAY, ARRAY]
    return [
        Kernel(code, "fft_four", [SIZE, SIZE, SIZE, SIZE, SSIZE, *arrays], flags),
        Kernel(code, "fft_factor", [SIZE, SIZE, SIZE, SIZE, SIZE, SSIZE, *arrays], flags),
        Kernel(code, "fft_times", [SIZE, SIZE, SIZE, SIZE, SIZE, *arrays], flags),
        *(mirror if mirroring else []),
    ]


def transform_rows(kernels: Mapping[str, CompiledKernel], context: Context, x: Array, way: int) -> Array:
    """Return the Fourier transforms of the rows of an array, undivided.

    Parameters
    ----------
    kernels : mapping
        Those of `fourier_kernels`, compiled.
    context : Context
        Where they run.
    x : Array
        Complex, in C order, not empty; a row goes along the last axis. It is used up.
    way : {FORWARD, BACKWARD}
        The sign of the exponent.
    """
    n = x.shape[-1]
    factors = _factors(n)
    if factors and max(factors) > LARGEST_FACTOR:
        return _convolved(kernels, context, x, way)
    return _passes(kernels, context, x, factors, way)


def mirrored(kernels: Mapping[str, CompiledKernel], context: Context, x: Array, n: int) -> Array:
    """Return all `n` coefficients of real rows from the first ones, which are the rows of `x`, in C order."""
    result = empty(context, (*x.shape[:-1], n), x.dtype)
    launch_chunks(kernels["fft_mirror"], context, result.size, x.shape[-1], n, x, result)
    return result


def _passes(kernels: Mapping[str, CompiledKernel], context: Context, x: Array, factors: list[int], way: int) -> Array:
    n = x.shape[-1]
    if n == 1:
        return x
    roots = _table(context, ("roots", n), x.dtype, lambda: _roots(np.arange(n), n))
    other = empty(context, x.shape, x.dtype)
    done = 1
    for r in factors:
        if r == 4:
            launch_chunks(kernels["fft_four"], context, x.size // 4, n, done, way, x, other, roots)
        else:
            launch_chunks(kernels["fft_factor"], context, x.size, n, done, r, way, x, other, roots)
        x, other = other, x
        done *= r
    return x


def _convolved(kernels: Mapping[str, CompiledKernel], context: Context, x: Array, way: int) -> Array:
    """Transform rows of any length, by way of a convolution with a chirp."""
    n = x.shape[-1]
    m = 1 << (2 * n - 2).bit_length()
    rows = x.size // n
    chirp = _table(context, ("chirp", n, way), x.dtype, lambda: _chirp(n, way))
    filtered = _table(context, ("filter", n, way), x.dtype, lambda: _filter(n, m, way))
    padded = empty(context, (rows, m), x.dtype)
    launch_chunks(kernels["fft_times"], context, padded.size, n, m, n, x, padded, chirp)
    spectrum = _passes(kernels, context, padded, _factors(m), FORWARD)
    product = empty(context, (rows, m), x.dtype)
    launch_chunks(kernels["fft_times"], context, product.size, m, m, m, spectrum, product, filtered)
    back = _passes(kernels, context, product, _factors(m), BACKWARD)
    launch_chunks(kernels["fft_times"], context, x.size, m, n, n, back, x, chirp)
    return x


def _factors(n: int) -> list[int]:
    """Return factors of `n`: fours, and primes."""
    factors = []
    for r in itertools.chain((4, 2), itertools.count(3, 2)):
        while n % r == 0:
            factors.append(r)
            n //= r
        if r % 2 and r * r > n:
            break
    return [*factors, n] if n > 1 else factors


def _table(context: Context, key: tuple, dtype: np.dtype, make: Callable[[], np.ndarray]) -> Array:
    """Return an array that was made on the host once, and is kept on the device."""
    kept = _tables.setdefault(context, {})
    key = (*key, dtype)
    if key not in kept:
        while len(kept) >= KEPT:
            del kept[next(iter(kept))]
        kept[key] = from_host(context, make().astype(dtype), constant=True)
    return kept[key]


def _roots(k: np.ndarray, n: int) -> np.ndarray:
    """Return e to the power of ``-2 pi i k / n``."""
    angle = 2 * np.longdouble("3.14159265358979323846264338327950288") * (k % n) / n
    return np.cos(angle) - 1j * np.sin(angle)


def _chirp(n: int, way: int) -> np.ndarray:
    """Return e to the power of ``way pi i k^2 / n``."""
    # Python's numbers: squares of large ones are larger than 64 bits.
    k = np.arange(n, dtype=object)
    roots = _roots((k * k % (2 * n)).astype(np.int64), 2 * n)
    return roots if way < 0 else roots.conj()


def _filter(n: int, m: int, way: int) -> np.ndarray:
    """Return the transform of the chirp that is convolved with, divided by the length."""
    chirp = _chirp(n, way).conj().astype(np.complex128)
    around = np.zeros(m, np.complex128)
    around[:n] = chirp
    around[m - n + 1 :] = chirp[:0:-1]
    return np.fft.fft(around) / m

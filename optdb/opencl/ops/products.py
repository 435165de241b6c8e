"""Kernels for products of matrices and vectors, and what launches them.

The matrix kernel gives each work item a block of the result, which it keeps in registers;
the vector kernel gives each item some rows. Both take any strides, but for the second
matrix, whose rows have to lie in memory without gaps; it is copied where they do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optdb.opencl.fp16_help import load_w, work_dtype, write_w
from optdb.opencl.kernels import ARRAY, SIZE, SSIZE, CompiledKernel, Kernel, ctype
from optdb.opencl.ops.elements import ElementKernels
from optdb.opencl.scalars.types import C_TYPES
from optdb.runtime.arrays import Array, empty

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Rows and columns of the block that one work item computes.
BLOCKS = {"cpu": (8, 32), "gpu": (4, 4)}
#: How many neighbours of a row are loaded at once.
WIDTHS = {"cpu": 16, "gpu": 4}
#: Rows that one work item multiplies with a vector.
ROWS = 16

_DEFINITIONS = """
#define T {stored}
#define W {work}
#define LOAD(x) {load}(x)
#define STORE(x) {store}(x)
#define BLOCK_M {block_m}
#define BLOCK_N {block_n}
#define ROWS {rows}
#define WIDTH {width}
#define VECTOR {vector}
#define LOAD_VECTOR(p) {load_vector}
#define STORE_PARTS(v, p) vstore{width}(v, 0, p)
#define FINISH(i, j, value) z[(ga_ssize)(i) * z0 + (ga_ssize)(j) * z1] = \\
    STORE(alpha * (value) + (add ? beta * LOAD(y[(ga_ssize)(i) * y0 + (ga_ssize)(j) * y1]) : 0))
"""

_MATMUL = """
KERNEL void matmul(ga_size m, ga_size n, ga_size k, W alpha, W beta, ga_uint add,
    GLOBAL_MEM T *a, ga_size a_off, ga_ssize a0, ga_ssize a1,
    GLOBAL_MEM T *b, ga_size b_off, ga_ssize b0,
    GLOBAL_MEM T *y, ga_size y_off, ga_ssize y0, ga_ssize y1,
    GLOBAL_MEM T *z, ga_size z_off, ga_ssize z0, ga_ssize z1)
{
    a = (GLOBAL_MEM T *)((GLOBAL_MEM char *)a + a_off);
    b = (GLOBAL_MEM T *)((GLOBAL_MEM char *)b + b_off);
    y = (GLOBAL_MEM T *)((GLOBAL_MEM char *)y + y_off);
    z = (GLOBAL_MEM T *)((GLOBAL_MEM char *)z + z_off);
    const ga_size i0 = get_global_id(1) * BLOCK_M, j0 = get_global_id(0) * BLOCK_N;
    if (i0 >= m || j0 >= n)
        return;
    if (j0 + BLOCK_N <= n) {  /* rows that there are not are the last one again, and are not stored */
        VECTOR acc[BLOCK_M][BLOCK_N / WIDTH];
        #pragma unroll
        for (int r = 0; r < BLOCK_M; ++r)
            #pragma unroll
            for (int c = 0; c < BLOCK_N / WIDTH; ++c)
                acc[r][c] = 0;
        for (ga_size l = 0; l < k; ++l) {
            VECTOR right[BLOCK_N / WIDTH];
            #pragma unroll
            for (int c = 0; c < BLOCK_N / WIDTH; ++c)
                right[c] = LOAD_VECTOR(b + (ga_ssize)l * b0 + j0 + c * WIDTH);
            #pragma unroll
            for (int r = 0; r < BLOCK_M; ++r) {
                const W left = LOAD(a[(ga_ssize)min(i0 + r, m - 1) * a0 + (ga_ssize)l * a1]);
                #pragma unroll
                for (int c = 0; c < BLOCK_N / WIDTH; ++c)
                    acc[r][c] += left * right[c];
            }
        }
        for (int r = 0; r < BLOCK_M && i0 + r < m; ++r)
            for (int c = 0; c < BLOCK_N / WIDTH; ++c) {
                W parts[WIDTH];
                STORE_PARTS(acc[r][c], parts);
                for (int v = 0; v < WIDTH; ++v)
                    FINISH(i0 + r, j0 + c * WIDTH + v, parts[v]);
            }
        return;
    }
    for (ga_size i = i0; i < min(i0 + BLOCK_M, m); ++i)
        for (ga_size j = j0; j < min(j0 + BLOCK_N, n); ++j) {
            W sum = 0;
            for (ga_size l = 0; l < k; ++l)
                sum += LOAD(a[(ga_ssize)i * a0 + (ga_ssize)l * a1]) * LOAD(b[(ga_ssize)l * b0 + j]);
            FINISH(i, j, sum);
        }
}
"""

_MATVEC = """
KERNEL void matvec(ga_size m, ga_size k, W alpha, W beta, ga_uint add,
    GLOBAL_MEM T *a, ga_size a_off, ga_ssize a0, ga_ssize a1,
    GLOBAL_MEM T *x, ga_size x_off, ga_ssize x0,
    GLOBAL_MEM T *y, ga_size y_off, ga_ssize y0,
    GLOBAL_MEM T *z, ga_size z_off, ga_ssize z0)
{
    a = (GLOBAL_MEM T *)((GLOBAL_MEM char *)a + a_off);
    x = (GLOBAL_MEM T *)((GLOBAL_MEM char *)x + x_off);
    y = (GLOBAL_MEM T *)((GLOBAL_MEM char *)y + y_off);
    z = (GLOBAL_MEM T *)((GLOBAL_MEM char *)z + z_off);
    const ga_size i0 = get_global_id(0) * ROWS;
    if (i0 >= m)
        return;
    const int rows = (int)min((ga_size)ROWS, m - i0);
    W acc[ROWS];
    for (int r = 0; r < ROWS; ++r)
        acc[r] = 0;
    if (a0 == 1 && rows == ROWS) {  /* the columns lie without gaps */
        for (ga_size l = 0; l < k; ++l) {
            const W right = LOAD(x[(ga_ssize)l * x0]);
            const GLOBAL_MEM T *column = a + (ga_ssize)l * a1 + i0;
            for (int r = 0; r < ROWS; ++r)
                acc[r] += LOAD(column[r]) * right;
        }
    } else {
        for (int r = 0; r < rows; ++r) {
            const GLOBAL_MEM T *row = a + (ga_ssize)(i0 + r) * a0;
            W part[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            ga_size l = 0;
            if (a1 == 1 && x0 == 1)
                for (; l + 8 <= k; l += 8)
                    for (int c = 0; c < 8; ++c)
                        part[c] += LOAD(row[l + c]) * LOAD(x[l + c]);
            W sum = 0;
            for (; l < k; ++l)
                sum += LOAD(row[(ga_ssize)l * a1]) * LOAD(x[(ga_ssize)l * x0]);
            for (int c = 0; c < 8; ++c)
                sum += part[c];
            acc[r] = sum;
        }
    }
    for (int r = 0; r < rows; ++r) {
        W value = alpha * acc[r];
        if (add)
            value += beta * LOAD(y[(ga_ssize)(i0 + r) * y0]);
        z[(ga_ssize)(i0 + r) * z0] = STORE(value);
    }
}
"""


def _definitions(dtype: str, flavour: str) -> str:
    block_m, block_n = BLOCKS[flavour]
    width = WIDTHS[flavour]
    half = load_w(dtype) != ""
    return _DEFINITIONS.format(
        stored=ctype(dtype),
        work=ctype(work_dtype(dtype)),
        load=load_w(dtype),
        store=write_w(dtype),
        block_m=block_m,
        block_n=block_n,
        rows=ROWS,
        width=width,
        vector=f"{C_TYPES[dtype]}{width}",
        load_vector=f"vload_half{width}(0, (const GLOBAL_MEM half *)(p))" if half else f"vload{width}(0, p)",
    )


def matmul_kernels(dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels that `matmul` takes."""
    work = work_dtype(dtype)
    params = [SIZE, SIZE, SIZE, work, work, "uint32"]
    params += [ARRAY, SSIZE, SSIZE, ARRAY, SSIZE, ARRAY, SSIZE, SSIZE, ARRAY, SSIZE, SSIZE]
    code = _definitions(dtype, context.flavour) + _MATMUL
    return [Kernel(code, "matmul", params, Kernel.get_flags(dtype)), *_copies(dtype).kernels()]


def matvec_kernels(dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels that `matvec` takes."""
    work = work_dtype(dtype)
    params = [SIZE, SIZE, work, work, "uint32"]
    params += [ARRAY, SSIZE, SSIZE, ARRAY, SSIZE, ARRAY, SSIZE, ARRAY, SSIZE]
    code = _definitions(dtype, context.flavour) + _MATVEC
    return [Kernel(code, "matvec", params, Kernel.get_flags(dtype))]


def matmul(
    kernels: Mapping[str, CompiledKernel],
    context: Context,
    a: Array,
    b: Array,
    z: Array,
    alpha: float = 1.0,
    y: Array | None = None,
    beta: float = 0.0,
) -> None:
    """Set `z` to ``alpha * dot(a, b) + beta * y``.

    Parameters
    ----------
    kernels : mapping
        Those of `matmul_kernels`, compiled.
    context : Context
        Where they run.
    a, b : Array
        Matrices of one dtype.
    z : Array
        For the result; it may be `y`.
    alpha, beta : float
        Factors.
    y : Array, optional
        What is added; not looked at where `beta` is 0.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    (m, k), n = a.shape, b.shape[1]
    _check(a.shape, b.shape, z.shape, (m, n), k == b.shape[0])
    if not z.size:
        return
    b = _rows_without_gaps(b, kernels, context)
    add = y is not None and beta != 0
    y = y if add else z
    args = [m, n, k, alpha, beta, int(add), a, *_steps(a), b, _steps(b)[0], y, *_steps(y), z, *_steps(z)]
    block_m, block_n = BLOCKS[context.flavour]
    blocks = (-(-n // block_n), -(-m // block_m))
    if context.flavour == "cpu":
        kernels["matmul"].call(blocks, (1, 1), *args)
    else:
        kernels["matmul"].scall(blocks, *args)


def matvec(
    kernels: Mapping[str, CompiledKernel],
    context: Context,
    a: Array,
    x: Array,
    z: Array,
    alpha: float = 1.0,
    y: Array | None = None,
    beta: float = 0.0,
) -> None:
    """Set `z` to ``alpha * dot(a, x) + beta * y``, like `matmul` with vectors for `x`, `y` and `z`."""
    m, k = a.shape
    _check(a.shape, x.shape, z.shape, (m,), k == x.shape[0])
    if not z.size:
        return
    add = y is not None and beta != 0
    y = y if add else z
    args = [m, k, alpha, beta, int(add), a, *_steps(a), x, *_steps(x), y, *_steps(y), z, *_steps(z)]
    items = -(-m // ROWS)
    if context.flavour == "cpu":
        kernels["matvec"].call(items, 1, *args)
    else:
        kernels["matvec"].scall(items, *args)


def _check(a: Sequence[int], b: Sequence[int], z: Sequence[int], wanted: Sequence[int], fits: bool) -> None:
    if not fits or tuple(z) != tuple(wanted):
        raise ValueError(f"shapes do not fit: a product of {tuple(a)} and {tuple(b)} for an array of {tuple(z)}")


def _steps(x: Array) -> list[int]:
    """Return strides in elements."""
    return [step // x.dtype.itemsize for step in x.strides]


def _copies(dtype: str) -> ElementKernels:
    return ElementKernels.copying(dtype, 2)


def _rows_without_gaps(b: Array, kernels: Mapping[str, CompiledKernel], context: Context) -> Array:
    if b.shape[1] == 1 or b.strides[1] == b.dtype.itemsize or not b.size:
        return b
    result: Any = empty(context, b.shape, b.dtype)
    _copies(b.dtype.name).launch(kernels, context, b.shape, [b, result])
    return result

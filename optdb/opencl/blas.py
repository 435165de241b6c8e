"""Matrix products of device arrays under their BLAS names, for use in hand-written ops.

The functions take the same arguments as those in ``pygpu.blas``. All arrays in a call have the same float dtype and
context, and may have any strides. The functions do not wait for the device; they can be called from an op's ``run``, in
a thunk, or elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from optdb.codegen.gemm.blocks import chosen
from optdb.codegen.gemm.products import matmul, matmul_kernels
from optdb.codegen.gemm.vector import matvec, matvec_kernels
from optdb.codegen.layout import view
from optdb.opencl.kernel_ops import CompiledKernel, Kernel, compile_kernels
from optdb.opencl.registry import contexts, get_context
from optdb.runtime.arrays import Array, empty

if TYPE_CHECKING:
    from optdb.runtime.context import Context

__all__ = ["dot", "gemm", "gemv"]

DTYPES = ("float16", "float32", "float64")


def gemm(
    alpha: float,
    a: Array,
    b: Array,
    beta: float = 0.0,
    c: Array | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
    overwrite_c: bool = False,
) -> Array:
    """Return ``alpha * dot(a, b) + beta * c``.

    Parameters
    ----------
    alpha, beta : float
        Factors.
    a, b : Array
        Matrices.
    c : Array, optional
        The matrix to add; required unless `beta` is 0.
    trans_a, trans_b : bool
        Whether to take the transpose of `a` or `b`.
    overwrite_c : bool
        Whether to write the result to `c`, which is then returned.

    Returns
    -------
    Array
        A new matrix in C order, or `c`.

    Raises
    ------
    ValueError
        If the shapes or ranks do not match, or `c` is required and missing.
    TypeError
        If the dtypes differ or are not floating point.
    """
    context = _check("gemm", a, {"a": (a, 2), "b": (b, 2), "c": (c, 2)}, beta, overwrite_c)
    a = _transposed(a) if trans_a else a
    b = _transposed(b) if trans_b else b
    z = c if overwrite_c and c is not None else empty(context, (a.shape[0], b.shape[1]), a.dtype)
    matmul(_kernels(context, "gemm", a.dtype.name, matmul_kernels), context, a, b, z, alpha, c, beta)
    return z


def gemv(
    alpha: float,
    a: Array,
    x: Array,
    beta: float = 0.0,
    y: Array | None = None,
    trans_a: bool = False,
    overwrite_y: bool = False,
) -> Array:
    """Return ``alpha * dot(a, x) + beta * y`` for a matrix and vectors; the other parameters are those of `gemm`."""
    context = _check("gemv", a, {"a": (a, 2), "x": (x, 1), "y": (y, 1)}, beta, overwrite_y)
    a = _transposed(a) if trans_a else a
    z = y if overwrite_y and y is not None else empty(context, (a.shape[0],), a.dtype)
    matvec(_kernels(context, "gemv", a.dtype.name, matvec_kernels), context, a, x, z, alpha, y, beta)
    return z


def dot(a: Array, b: Array) -> Array:
    """Return the product of a matrix and a matrix or vector."""
    return gemm(1.0, a, b) if b.ndim == 2 else gemv(1.0, a, b)


def _check(
    name: str, first: Array, arrays: dict[str, tuple[Array | None, int]], beta: float, overwrite: bool
) -> Context:
    *_, (added, _) = arrays.values()
    if added is None and (beta or overwrite):
        raise ValueError(f"{name} has no array to add to or overwrite: pass {list(arrays)[-1]}=")
    for which, (array, ndim) in arrays.items():
        if array is None:
            continue
        if not isinstance(array, Array):
            raise TypeError(f"{which} of {name} is {type(array).__name__}, not a device array: transfer it first")
        if array.ndim != ndim:
            raise ValueError(f"{which} of {name} has {array.ndim} dimensions instead of {ndim}")
        if array.dtype != first.dtype or array.dtype.name not in DTYPES:
            raise TypeError(
                f"{which} of {name} is {array.dtype}: all arrays must have the same dtype, one of {', '.join(DTYPES)}"
            )
        if array.context != first.context:
            raise ValueError(f"{which} of {name} is in another context: transfer it first")
    context_name = contexts.name_of(lambda context: context.cl_context == first.context)
    if context_name is None:
        raise ValueError(
            "the array does not belong to a context of optdb: create it with optdb.opencl.empty, or transfer it"
        )
    return get_context(context_name)


def _kernels(
    context: Context, name: str, dtype: str, describe: Callable[[str, Context], list[Kernel]]
) -> dict[str, CompiledKernel]:
    """Return the compiled kernels for one kind of product; each choice of block shapes is compiled only once."""
    cache = context.kept.setdefault(__name__, {})
    blocks = chosen(context, dtype)
    entry = cache.get((name, dtype))
    if entry is None or entry[0] is not blocks:
        kernels = compile_kernels(describe(dtype, context), context, f"optdb.opencl.blas.{name}")
        entry = cache[name, dtype] = (blocks, kernels)
    return entry[1]


def _transposed(a: Array) -> Array:
    return view(a, a.shape[::-1], a.strides[::-1])

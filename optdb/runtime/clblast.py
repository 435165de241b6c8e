"""CLBlast, an optional library of matrix products for OpenCL, used only if tuning found CLBlast faster.

See Nugteren, "CLBlast: a tuned OpenCL BLAS library" (2018).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import warnings
from dataclasses import dataclass
from typing import Any

from optdb.runtime.arrays import Array

_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112
_NUMBERS = {"float32": ("S", ctypes.c_float), "float64": ("D", ctypes.c_double)}


@functools.cache
def find() -> ctypes.CDLL | None:
    """Return the library; None if it is not installed or does not load."""
    name = ctypes.util.find_library("clblast")
    if name is None:
        return None
    try:
        # Before loading CLBlast, load the system's OpenCL library, to which CLBlast is linked, with global symbols.
        # PyOpenCL bundles its own copy, and mixing functions of the two copies can crash the process.
        ctypes.CDLL("libOpenCL.so.1", mode=ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(name)
    except OSError:
        return None


@dataclass(frozen=True)
class _Matrix:
    buffer: int
    transposed: bool
    offset: int
    leading: int
    batch_step: int


def multiply(queue: Any, a: Array, b: Array, z: Array, alpha: float = 1.0, beta: float = 0.0) -> bool:
    """Set `z` to ``alpha * dot(a, b) + beta * z`` if CLBlast supports the operands; return whether `z` was set.

    The arrays have the same dtype, and are matrices or batches of equal length.
    """
    library = find()
    kinds = _NUMBERS.get(z.dtype.name)
    matrices = [matrix for matrix in map(_matrix, (a, b, z)) if matrix is not None]
    if library is None or kinds is None or len(matrices) < 3 or matrices[2].transposed or not a.size or not b.size:
        return False
    (m, k), n = a.shape[-2:], b.shape[-1]
    letter, number = kinds
    layouts = [_TRANSPOSED if x.transposed else _PLAIN for x in matrices[:2]]
    batch = [z.shape[0]] if z.ndim == 3 and z.shape[0] > 1 else []
    if batch and not ([len(a)] == [len(b)] == batch and all(x.batch_step > 0 for x in matrices)):
        return False
    left, right, result = (
        [ctypes.c_void_p(x.buffer), *map(ctypes.c_size_t, [x.offset, x.leading, *([x.batch_step] if batch else [])])]
        for x in matrices
    )
    handle = ctypes.c_void_p(queue.int_ptr)
    function = getattr(library, f"CLBlast{letter}gemm{'StridedBatched' if batch else ''}")
    status: int = function(
        *(_ROW_MAJOR, *layouts, *map(ctypes.c_size_t, (m, n, k)), number(alpha), *left, *right),
        *(number(beta), *result, *map(ctypes.c_size_t, batch), ctypes.byref(handle), None),
    )
    if status:
        warnings.warn(f"CLBlast rejected a product of {a.shape} and {b.shape} with status {status}", stacklevel=2)
    return status == 0


def _matrix(x: Array) -> _Matrix | None:
    item = x.dtype.itemsize
    (m, n), (row, column) = x.shape[-2:], (step // item for step in x.strides[-2:])
    batch_step = x.strides[0] // item if x.ndim == 3 else 0
    if x.offset % item or x.base_data is None:
        return None
    at = x.offset // item
    # The stride of an axis of length 1 is irrelevant.
    if (n == 1 or column == 1) and (m == 1 or row >= n):
        return _Matrix(x.base_data.int_ptr, False, at, row if m > 1 else n, batch_step)
    if (m == 1 or row == 1) and (n == 1 or column >= m):
        return _Matrix(x.base_data.int_ptr, True, at, column if n > 1 else m, batch_step)
    return None

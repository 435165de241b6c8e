"""Creation of device arrays, with the same signatures as in ``pygpu``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import DTypeLike

from optdb.opencl.registry import get_context
from optdb.runtime import arrays
from optdb.runtime.arrays import Array
from optdb.runtime.context import Context
from optdb.runtime.sizes import as_int


def empty(shape: int | Sequence[int], dtype: DTypeLike = "float64", context: Context | Hashable = None) -> Array:
    """Return an uninitialized C-contiguous array.

    Parameters
    ----------
    shape : int or sequence of int
        The array's shape.
    dtype : str or numpy.dtype
        The array's dtype.
    context : Context or str, optional
        A context or its name; by default, the default context.

    Raises
    ------
    TypeError
        If the device does not support the dtype.
    ValueError
        If a length is negative.
    MemoryError
        If the device does not have enough memory.
    optdb.lifters.contexts.ContextNotDefined
        If there is no such context.
    """
    array_context = context if isinstance(context, Context) else get_context(context)
    lengths = tuple(map(as_int, shape)) if isinstance(shape, Sequence) else (as_int(shape),)
    reason = array_context.unsupported_reason(dtype)
    if reason is not None:
        raise TypeError(f"an array of {np.dtype(dtype)}: {reason}")
    if any(isinstance(length, int) and length < 0 for length in lengths):
        raise ValueError(f"an array of shape {lengths}: lengths must not be negative")
    return arrays.empty(array_context, lengths, np.dtype(dtype))


def zeros(shape: int | Sequence[int], dtype: DTypeLike = "float64", context: Context | Hashable = None) -> Array:
    """Return a C-contiguous array of zeros; the parameters and errors are the same as for `empty`."""
    return arrays.fill_zeros(empty(shape, dtype, context))

"""The dtypes in which C combines numbers."""

from __future__ import annotations

import numpy as np


def common_in_c(dtype: str, other: str) -> str:
    """Return the dtype in which C combines two numbers, by its usual arithmetic conversions."""
    if dtype == other:
        return dtype
    kinds = {np.dtype(dtype).kind, np.dtype(other).kind}
    if kinds <= {*"biu"}:
        promoted = {promoted_in_c(dtype), promoted_in_c(other)}
        return next(name for name in ("uint64", "int64", "uint32", "int32") if name in promoted)
    if "c" in kinds or "float16" in (dtype, other):
        return np.promote_types(dtype, other).name  # without C code
    # An integer of any size is converted to the float's dtype.
    return max((name for name in (dtype, other) if is_real_float(name)), key=lambda name: np.dtype(name).itemsize)


def promoted_in_c(dtype: str) -> str:
    """Return the dtype in which C computes with numbers of a given dtype."""
    kind_and_size = np.dtype(dtype)
    return "int32" if kind_and_size.kind in "biu" and kind_and_size.itemsize < 4 else dtype


def is_real_float(dtype: str) -> bool:
    """Return whether a dtype is a float of some size."""
    return dtype.startswith("float")


def is_inexact(dtype: str) -> bool:
    """Return whether a dtype is a float or a complex number of some size."""
    return dtype.startswith(("float", "complex"))

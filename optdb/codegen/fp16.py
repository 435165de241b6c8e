"""float16 in kernels: kept in 16 bits, computed in 32.

No device needs to know ``half`` for this. Kernels load what they work on through the function that `load_w` names,
work in the type that `work_dtype` names, and store through the function that `write_w` names. For all other dtypes
the names are empty, so that one template does for all of them: ``f"{load_w(dtype)}(x[i])"``. The functions are in
the prelude of :mod:`optdb.codegen.kernels`. float32 holds every float16 exactly, and what is stored is rounded once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

__all__ = ["load_w", "work_dtype", "write_w"]


def work_dtype(dtype: DTypeLike) -> str:
    """Return the name of the dtype to compute in."""
    return "float32" if _is_half(dtype) else np.dtype(dtype).name


def load_w(dtype: DTypeLike) -> str:
    """Return the function to put around what is read, empty where none is needed."""
    return "ga_half2float" if _is_half(dtype) else ""


def write_w(dtype: DTypeLike) -> str:
    """Return the function to put around what is stored, empty where none is needed."""
    return "ga_float2half" if _is_half(dtype) else ""


def _is_half(dtype: DTypeLike) -> bool:
    return np.dtype(dtype) == np.float16

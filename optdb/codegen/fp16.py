"""float16 in kernels: kept in 16 bits, computed in 32.

No device needs to know ``half`` for this. Kernels load what they work on through the function that `load_w` names,
work in the type that `work_dtype` names, and store through the function that `write_w` names. For all other dtypes
the names are empty, so that one template does for all of them: ``f"{load_w(dtype)}(x[i])"``. The functions are in
the prelude of :mod:`optdb.codegen.kernels`. float32 holds every float16 exactly, and what is stored is rounded once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from optdb.codegen.kernels.prelude import ctype

__all__ = ["load_w", "type_words", "work_dtype", "write_w"]


def work_dtype(dtype: DTypeLike) -> str:
    """Return the name of the dtype to compute in."""
    return "float32" if _is_half(dtype) else np.dtype(dtype).name


def load_w(dtype: DTypeLike) -> str:
    """Return the function to put around what is read, empty where none is needed."""
    return "ga_half2float" if _is_half(dtype) else ""


def write_w(dtype: DTypeLike) -> str:
    """Return the function to put around what is stored, empty where none is needed."""
    return "ga_float2half" if _is_half(dtype) else ""


def type_words(dtype: DTypeLike, prefix: str = "") -> dict[str, str]:
    """Return what a template of a kernel calls a dtype: `stored`, `work`, `load` and `store`, each behind a prefix."""
    words = {"stored": ctype(dtype), "work": ctype(work_dtype(dtype)), "load": load_w(dtype), "store": write_w(dtype)}
    return {f"{prefix}{name}": word for name, word in words.items()}


def _is_half(dtype: DTypeLike) -> bool:
    return np.dtype(dtype) == np.float16

"""The macros and types that kernels use, defined before every kernel's code.

The prelude matches the prelude of Theano's GPU back-end, so that kernels written for that back-end can be ported. The
macro `OUTLINED_KERNEL` exists only in optdb; it is for kernels in which each work item processes a chunk of work
(:mod:`optdb.codegen.kernels.isolation`).
"""

from __future__ import annotations

import importlib.resources

import numpy as np
from numpy.typing import DTypeLike

PRELUDE = importlib.resources.files("optdb.codegen.kernels").joinpath("prelude.cl").read_text(encoding="utf-8")

#: Name of each dtype in kernels.
CTYPES = {
    "bool": "ga_bool",
    "int8": "ga_byte",
    "uint8": "ga_ubyte",
    "int16": "ga_short",
    "uint16": "ga_ushort",
    "int32": "ga_int",
    "uint32": "ga_uint",
    "int64": "ga_long",
    "uint64": "ga_ulong",
    "float16": "ga_half",
    "float32": "ga_float",
    "float64": "ga_double",
    "complex64": "ga_cfloat",
    "complex128": "ga_cdouble",
}


def ctype(dtype: DTypeLike) -> str:
    """Return the name of a dtype in kernels; raise TypeError if there is none."""
    # Fast path: this function is called with a dtype's name for each array in each graph.
    name = dtype if isinstance(dtype, str) and dtype in CTYPES else np.dtype(dtype).name
    if name not in CTYPES:
        raise TypeError(f"kernels have no type for dtype {name}: convert it to one of {', '.join(CTYPES)} first")
    return CTYPES[name]

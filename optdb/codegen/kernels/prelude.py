"""The macros and types that kernels use, defined ahead of every kernel's code.

They are the words of Theano's kernels for its GPU back-end, so that those can be brought over: ``KERNEL``, the
memories, the sizes and places of work items and groups, and a type ``ga_...`` for each dtype. :func:`ctype` gives the
type's name. `OUTLINED_KERNEL` is a word of optdb's own: a kernel of which each work item has a chunk of work, wherever
one item is a group, as on processors (see :mod:`optdb.codegen.kernels.outlining`).
"""

from __future__ import annotations

import importlib.resources

import numpy as np
from numpy.typing import DTypeLike

#: The words, in OpenCL C.
PRELUDE = importlib.resources.files("optdb.codegen.kernels").joinpath("prelude.cl").read_text(encoding="utf-8")

#: The word of each dtype.
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
    """Return the name of a dtype in kernels.

    Raises
    ------
    TypeError
        If kernels have no word for it.
    """
    # Fast path: this is called with a name for each array of each graph.
    name = dtype if isinstance(dtype, str) and dtype in CTYPES else np.dtype(dtype).name
    if name not in CTYPES:
        raise TypeError(f"kernels have no type for dtype {name}: convert it to one of {', '.join(CTYPES)} first")
    return CTYPES[name]

"""The words that kernels are written in, defined ahead of every kernel's code.

They are the words of Theano's kernels for its GPU back-end, so that those can be brought over: ``KERNEL``, the
memories, the sizes and places of work items and groups, and a type ``ga_...`` for each dtype. :func:`ctype` gives the
type's name. `OUTLINED_KERNEL` is a word of optdb's own: a kernel of which each work item has a chunk of work, wherever
one item is a group, as on processors (see :mod:`optdb.codegen.kernels.outlining`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

PRELUDE = """\
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#define KERNEL __kernel
#define OUTLINED_KERNEL __kernel
#define GLOBAL_MEM __global
#define LOCAL_MEM __local
#define LOCAL_MEM_ARG __local
#define LID_0 get_local_id(0)
#define LID_1 get_local_id(1)
#define LID_2 get_local_id(2)
#define LDIM_0 get_local_size(0)
#define LDIM_1 get_local_size(1)
#define LDIM_2 get_local_size(2)
#define GID_0 get_group_id(0)
#define GID_1 get_group_id(1)
#define GID_2 get_group_id(2)
#define GDIM_0 get_num_groups(0)
#define GDIM_1 get_num_groups(1)
#define GDIM_2 get_num_groups(2)
#define local_barrier() barrier(CLK_LOCAL_MEM_FENCE)
#define ga_bool uchar
#define ga_byte char
#define ga_ubyte uchar
#define ga_short short
#define ga_ushort ushort
#define ga_int int
#define ga_uint uint
#define ga_long long
#define ga_ulong ulong
#define ga_float float
#define ga_double double
#define ga_cfloat float2
#define ga_cdouble double2
#define ga_size ulong
#define ga_ssize long
/* A struct: a kernel that calculates with the bits of a half does not compile. */
typedef struct { ushort bits; } ga_half;
static inline float ga_half2float(ga_half h) { return vload_half(0, (const half *)&h.bits); }
static inline ga_half ga_float2half(float f) { ga_half h; vstore_half_rte(f, 0, (half *)&h.bits); return h; }
"""

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
    """Return what a dtype is called in kernels.

    Raises
    ------
    TypeError
        If kernels have no word for it.
    """
    # By its name it is asked for each array of each graph.
    name = dtype if isinstance(dtype, str) and dtype in CTYPES else np.dtype(dtype).name
    if name not in CTYPES:
        raise TypeError(f"kernels have no type for dtype {name}: convert it to one of {', '.join(CTYPES)} first")
    return CTYPES[name]

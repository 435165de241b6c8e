"""Rows put in order, with the places where their elements were: a stable sort by merging.

First, blocks of each row are sorted: a processor's work item inserts the elements of a
small block one after the other; on a graphics card, a group sorts a larger one by a
bitonic network in local memory, in which places tell equals apart. Then pairs of sorted
runs are merged, pass by pass, from one buffer to another. An item writes one segment of
a merged run, wherever that begins: it finds by bisection how many elements of each run
come before. So all passes have work for all units, and any length will do.

Who wants but the first elements of each row says so: no pass merges more.

References
----------
K. Batcher, Sorting networks and their applications (1968); S. Odeh et al., Merge Path -
Parallel merging made simple (2012).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from optdb.opencl.kernels import ARRAY, SIZE, CompiledKernel, Kernel, ctype
from optdb.opencl.ops.layout import CHUNKS_PER_UNIT
from optdb.opencl.scalars.types import c_type
from optdb.runtime.arrays import Array, empty

if TYPE_CHECKING:
    from optdb.runtime.context import Context

#: Elements of a block that is sorted by itself; powers of two.
BLOCK = {"cpu": 32, "gpu": 256}
#: The most elements that a work item merges at a time, and the fewest on a processor.
SEGMENT = {"cpu": 4096, "gpu": 16}

#: Orders, as kernels know them. What is no number is the largest, as in NumPy: it comes last in ascending order.
ASCENDING, DESCENDING = 0, 1
#: As ascending, but what is no number comes first: to NumPy it is the smallest element of an array, too.
NAN_FIRST = 2

_COMMON = """
#define PLACES {places}
#define BLOCK {block}
{value}
static inline int before({stored} first, {stored} second, int order)
{{
const {work} a = value_of(first), b = value_of(second);
return {before};
}}
"""

#: What elements are compared by. A half is compared by its bits, as a whole number; what is none is the largest.
_VALUE = """
#define NO_NUMBER(x) ((x) != (x))
static inline {work} value_of({stored} x) {{ return x; }}
"""
_VALUE_OF_HALF = """
#define NO_NUMBER(x) ((x) == 0x8000)
static inline int value_of(ushort x)
{
const int size = x & 0x7fff;
return size > 0x7c00 ? 0x8000 : x & 0x8000 ? -size : size;
}
"""

_BEFORE = "order == 1 ? b < a : a < b"
_BEFORE_OR_NAN = """order == 0 ? (a < b) | (!NO_NUMBER(a) & NO_NUMBER(b))
    : (order == 1 ? b < a : a < b) | (NO_NUMBER(a) & !NO_NUMBER(b))"""

_INSERTION = """
KERNEL void blocks(ga_int given, ga_size rows, ga_size n, ga_size each, GLOBAL_MEM {stored} *x, ga_size x_off,
    GLOBAL_MEM {stored} *z, ga_size z_off
#if PLACES
    , GLOBAL_MEM ga_long *q, ga_size q_off
#endif
    )
{{
x = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)x + x_off);
z = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)z + z_off);
#if PLACES
q = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)q + q_off);
#endif
const int order = {order};
const ga_size per_row = (n + BLOCK - 1) / BLOCK;
const ga_size stop = min((get_global_id(0) + 1) * each, rows * per_row);
for (ga_size s = get_global_id(0) * each; s < stop; ++s) {{
    const ga_size begin = s % per_row * BLOCK, at = s / per_row * n + begin;
    const int here = (int)min((ga_size)BLOCK, n - begin);
    {stored} v[BLOCK];
#if PLACES
    uchar from[BLOCK];
#endif
    for (int i = 0; i < here; ++i) {{
        const {stored} x_i = x[at + i];
        int j = i;
        for (; j > 0 && before(x_i, v[j - 1], order); --j) {{
            v[j] = v[j - 1];
#if PLACES
            from[j] = from[j - 1];
#endif
        }}
        v[j] = x_i;
#if PLACES
        from[j] = (uchar)i;
#endif
    }}
    for (int i = 0; i < here; ++i) {{
        z[at + i] = v[i];
#if PLACES
        q[at + i] = begin + from[i];
#endif
    }}
}}
}}
"""

_BITONIC = """
static inline bool precedes(LOCAL_MEM {stored} *v, LOCAL_MEM uint *from, uint i, uint j, uint here,
    int order)
{{
if (from[i] >= here || from[j] >= here)
    return from[i] < from[j];
return before(v[i], v[j], order) || (!before(v[j], v[i], order) && from[i] < from[j]);
}}
KERNEL void blocks(ga_int given, ga_size rows, ga_size n, ga_size each, GLOBAL_MEM {stored} *x, ga_size x_off,
    GLOBAL_MEM {stored} *z, ga_size z_off
#if PLACES
    , GLOBAL_MEM ga_long *q, ga_size q_off
#endif
    )
{{
x = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)x + x_off);
z = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)z + z_off);
#if PLACES
q = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)q + q_off);
#endif
LOCAL_MEM {stored} v[BLOCK];
LOCAL_MEM uint from[BLOCK];
const int order = {order};
const ga_size per_row = (n + BLOCK - 1) / BLOCK;
const ga_size begin = GID_0 % per_row * BLOCK, at = GID_0 / per_row * n + begin;
const uint here = (uint)min((ga_size)BLOCK, n - begin);
for (uint i = LID_0; i < BLOCK; i += LDIM_0) {{
    from[i] = i;
    if (i < here)
        v[i] = x[at + i];
}}
local_barrier();
for (uint size = 2; size <= BLOCK; size *= 2)
    for (uint step = size / 2; step > 0; step /= 2) {{
        for (uint t = LID_0; t < BLOCK / 2; t += LDIM_0) {{
            const uint i = 2 * t - (t & (step - 1)), j = i + step;
            if (i & size ? precedes(v, from, i, j, here, order) : precedes(v, from, j, i, here, order)) {{
                const {stored} v_i = v[i];
                const uint from_i = from[i];
                v[i] = v[j];
                from[i] = from[j];
                v[j] = v_i;
                from[j] = from_i;
            }}
        }}
        local_barrier();
    }}
for (uint i = LID_0; i < here; i += LDIM_0) {{
    z[at + i] = v[i];
#if PLACES
    q[at + i] = begin + from[i];
#endif
}}
}}
"""

_MERGE = """
KERNEL void merge(ga_int given, ga_size rows, ga_size n, ga_size width, ga_size segment, ga_size keep, ga_size each,
    GLOBAL_MEM {stored} *x, ga_size x_off, GLOBAL_MEM {stored} *z, ga_size z_off
#if PLACES
    , GLOBAL_MEM ga_long *p, ga_size p_off, GLOBAL_MEM ga_long *q, ga_size q_off
#endif
    )
{{
x = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)x + x_off);
z = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)z + z_off);
#if PLACES
p = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)p + p_off);
q = (GLOBAL_MEM ga_long *)((GLOBAL_MEM char *)q + q_off);
#endif
const int order = {order};
const ga_size per_row = (n + segment - 1) / segment;
const ga_size stop = min((get_global_id(0) + 1) * each, rows * per_row);
for (ga_size s = get_global_id(0) * each; s < stop; ++s) {{
    const ga_size row = s / per_row * n, begin = s % per_row * segment;
    const ga_size base = begin / (2 * width) * (2 * width);
    const ga_size gone = begin - base;
    if (gone >= keep)
        continue;
    const ga_size middle = min(base + width, n), limit = min(base + 2 * width, n);
    const ga_size left = row + base, right = row + middle;
    const ga_size n_left = min(middle - base, keep), n_right = min(limit - middle, keep);
    const ga_size end = min(min(gone + segment, keep), n_left + n_right);
    // Signed: the simulator does not know the subtraction that stops at 0.
    ga_size low = (ga_size)max((ga_ssize)gone - (ga_ssize)n_right, (ga_ssize)0), high = min(gone, n_left);
    while (low < high) {{
        const ga_size mid = (low + high) / 2;
        if (before(x[right + gone - 1 - mid], x[left + mid], order))
            high = mid;
        else
            low = mid + 1;
    }}
    ga_size i = low, j = gone - low, o = gone;
    while (o < end) {{
        // So many steps cannot run out of either run. They do not branch: nobody could foretell where to.
        const ga_size sure = min(min(n_left - i, n_right - j), end - o);
        for (const ga_size stop = o + sure; o < stop; ++o) {{
            const {stored} a = x[left + i], b = x[right + j];
            const int second = before(b, a, order);
            z[left + o] = second ? b : a;
#if PLACES
            q[left + o] = p[second ? right + j : left + i];
#endif
            i += 1 - second;
            j += second;
        }}
        if (i < n_left && j < n_right)
            continue;
        const ga_size rest = i < n_left ? left + i : right + j;
        const ga_size from = o;
        for (; o < end; ++o) {{
            z[left + o] = x[rest + o - from];
#if PLACES
            q[left + o] = p[rest + o - from];
#endif
        }}
    }}
}}
}}
"""


def sorting_kernels(dtype: str, order: int | None, places: bool, flavour: str) -> list[Kernel]:
    """Return the kernels that `sort_rows` launches.

    Parameters
    ----------
    dtype : str
        Of the elements; real.
    order : {ASCENDING, DESCENDING, NAN_FIRST}, optional
        Which element comes first; if it is not given, each launch says so.
    places : bool
        Whether to keep account of where the elements were.
    flavour : {'cpu', 'gpu'}
        Of the context.
    """
    half = dtype == "float16"
    code = _COMMON + (_INSERTION if flavour == "cpu" else _BITONIC) + _MERGE
    text = code.format(
        places=int(places),
        block=BLOCK[flavour],
        stored="ushort" if half else ctype(dtype),
        work="int" if half else c_type(dtype),
        value=_VALUE_OF_HALF if half else _VALUE.format(stored=ctype(dtype), work=c_type(dtype)),
        before=_BEFORE_OR_NAN if np.dtype(dtype).kind == "f" else _BEFORE,
        order="given" if order is None else order,
    )
    flags = Kernel.get_flags(dtype)
    once, twice = [ARRAY] * places, [ARRAY, ARRAY] * places
    return [
        Kernel(text, "blocks", ["int32", *([SIZE] * 3), ARRAY, ARRAY, *once], flags),
        Kernel(text, "merge", ["int32", *([SIZE] * 6), ARRAY, ARRAY, *twice], flags),
    ]


def sort_rows(
    kernels: Mapping[str, CompiledKernel],
    context: Context,
    x: Array,
    values: Array,
    places: Array | None = None,
    keep: int | None = None,
    order: int = ASCENDING,
) -> None:
    """Sort the rows of an array.

    Parameters
    ----------
    kernels : mapping
        Those of `sorting_kernels`, compiled.
    context : Context
        Where they run.
    x : Array
        In C order, not empty; a row goes along the last axis.
    values : Array
        For the elements in order. It shares no memory with `x`, and has its shape.
    places : Array, optional
        For where each of them was in its row: int64. Wanted if the kernels keep account of it.
    keep : int, optional
        How many elements of each row are wanted; all if it is not given. What comes after them is anything.
    order : {ASCENDING, DESCENDING, NAN_FIRST}
        Which element comes first; the one that the kernels were made for, if they were made for one.
    """
    n = x.shape[-1]
    rows = x.size // n
    block = BLOCK[context.flavour]
    passes = max(0, (-(-n // block) - 1).bit_length())
    buffers = [(values, *([] if places is None else [places]))]
    if passes:
        buffers.append(tuple(empty(context, a.shape, a.dtype) for a in buffers[0]))
    # The last pass has to end in what was given.
    target = buffers[passes % 2]
    _sort_blocks(kernels["blocks"], context, order, rows, n, x, target)
    width = block
    for done in range(1, passes + 1):
        source, target = target, buffers[(passes - done) % 2]
        _merge(kernels["merge"], context, order, rows, n, width, n if keep is None else keep, source, target)
        width *= 2


def _sort_blocks(
    kernel: CompiledKernel, context: Context, order: int, rows: int, n: int, x: Array, target: tuple[Array, ...]
) -> None:
    block = BLOCK[context.flavour]
    count = rows * -(-n // block)
    if context.flavour == "cpu":
        each = max(-(-count // _pieces(context)), 8)
        kernel.call(-(-count // each), 1, order, rows, n, each, x, *target)
        return
    group = min(block // 2, context.device.max_work_group_size)
    kernel.call(count * group, group, order, rows, n, 1, x, *target)


def _merge(
    kernel: CompiledKernel,
    context: Context,
    order: int,
    rows: int,
    n: int,
    width: int,
    keep: int,
    source: tuple[Array, ...],
    target: tuple[Array, ...],
) -> None:
    segment = min(2 * width, SEGMENT[context.flavour])
    count = rows * -(-n // segment)
    arrays = [array for pair in zip(source, target, strict=True) for array in pair]
    if context.flavour == "cpu":
        each = -(-count // _pieces(context))
        kernel.call(-(-count // each), 1, order, rows, n, width, segment, keep, each, *arrays)
    else:
        kernel.scall(count, order, rows, n, width, segment, keep, 1, *arrays)


def _pieces(context: Context) -> int:
    """Return how many work items share the work of a processor."""
    return context.device.max_compute_units * CHUNKS_PER_UNIT

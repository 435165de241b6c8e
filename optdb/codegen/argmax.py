"""The kernel that finds largest elements, and their places, along some axes."""

from __future__ import annotations

import numpy as np

from optdb.codegen.fp16 import load_w
from optdb.codegen.kernels import Kernel, ctype
from optdb.codegen.scalars.types import c_type


def largest_kernel(dtype: str, kept: int, folded: int) -> Kernel:
    """Return the kernel, named ``largest``, for arrays of which so many axes stay, and so many go.

    An item has `each` of its `n` results, each of `m` elements. The first element that is no number is the largest, and
    the first of equals.
    """
    stored, computed, load = ctype(dtype), c_type(dtype), load_w(dtype)
    larger = "x > largest || (isnan(x) && !isnan(largest))" if np.dtype(dtype).kind == "f" else "x > largest"
    lengths = [f"ga_size k{d}" for d in range(kept)] + [f"ga_size r{d}" for d in range(folded)]
    steps = [f"ga_ssize ks{d}" for d in range(kept)] + [f"ga_ssize rs{d}" for d in range(folded)]
    last = folded - 1
    place_kept = "\n".join(f"base += (ga_ssize)(rest % k{d}) * ks{d}; rest /= k{d};" for d in reversed(range(kept)))
    place_folded = "\n".join(f"p += (ga_ssize)(at % r{d}) * rs{d}; at /= r{d};" for d in reversed(range(last)))
    return Kernel(f"""
#pragma OPENCL FP_CONTRACT OFF
OUTLINED_KERNEL void largest(ga_size n, ga_size each, ga_size m, {", ".join(lengths)},
    ARRAY {stored} *a, {", ".join(steps)}, ARRAY {stored} *z, ARRAY ga_long *places)
{{
const ga_size o_begin = get_global_id(0) * each, o_end = min(o_begin + each, n);
for (ga_size o = o_begin; o < o_end; ++o) {{
ga_size rest = o;
ga_ssize base = 0;
{place_kept}
{computed} largest = 0;
ga_ssize best = 0, place = 0;
ga_size i = 0;
while (i < m) {{
const ga_size column = i % r{last};
ga_size at = i / r{last};
ga_ssize p = base + (ga_ssize)column * rs{last};
{place_folded}
const ga_size stop = min(m, i + (r{last} - column));
if (i == 0) {{
largest = {load}(a[p]);
best = p;
place = i;
++i;
p += rs{last};
}}
for (; i < stop; ++i) {{
const {computed} x = {load}(a[p]);
if ({larger}) {{
largest = x;
best = p;
place = i;
}}
p += rs{last};
}}
}}
z[o] = a[best];
places[o] = place;
}}
}}
""")

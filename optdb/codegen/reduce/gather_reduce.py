"""A kernel that goes over what each of its outputs depends on."""

from __future__ import annotations

from collections.abc import Sequence


def walk(
    name: str,
    stored: str,
    outputs: Sequence[tuple[str, str]],
    ndims: tuple[int, int],
    start: str,
    first: str,
    each: str,
    finish: str,
) -> str:
    """Return a kernel that goes over what each output depends on.

    Parameters
    ----------
    name : str
        Of the kernel.
    stored : str
        The C type of the elements of the input, `a`.
    outputs : sequence of (str, str)
        Names of the outputs and the C types of their elements.
    ndims : tuple of int
        How many axes stay, and how many go.
    start, finish : str
        What is done before and after, for output ``o``.
    first, each : str
        What is done with the first element, ``a[p]``, and with all others; ``i`` counts them.
    """
    kept, folded = ndims
    lengths = [f"ga_size k{d}" for d in range(kept)] + [f"ga_size r{d}" for d in range(folded)]
    steps = [f"ga_ssize ks{d}" for d in range(kept)] + [f"ga_ssize rs{d}" for d in range(folded)]
    last = folded - 1
    place_kept = "\n".join(f"base += (ga_ssize)(rest % k{d}) * ks{d}; rest /= k{d};" for d in reversed(range(kept)))
    place_folded = "\n".join(f"p += (ga_ssize)(at % r{d}) * rs{d}; at /= r{d};" for d in reversed(range(last)))
    params = ", ".join(f"GLOBAL_MEM {kind} *{z}, ga_size {z}_off" for z, kind in outputs)
    pointers = "\n".join(
        f"{z} = (GLOBAL_MEM {kind} *)((GLOBAL_MEM char *){z} + {z}_off);" for z, kind in [("a", stored), *outputs]
    )
    return f"""
#pragma OPENCL FP_CONTRACT OFF
OUTLINED_KERNEL void {name}(ga_size n, ga_size each, ga_size m, ga_size parts, ga_size part,
    {", ".join(lengths)}, GLOBAL_MEM {stored} *a, ga_size a_off, {", ".join(steps)}, {params})
{{
{pointers}
const ga_size item = get_global_id(0);
const ga_size mine = item % parts;
const ga_size begin = mine * part;
const ga_size end = min(begin + part, m);
ga_size o = item / parts * each;
const ga_size o_end = min(o + each, n);
for (; o < o_end; ++o) {{
ga_size rest = o;
ga_ssize base = 0;
{place_kept}
{start}
ga_size i = begin;
while (i < end) {{
const ga_size column = i % r{last};
ga_size at = i / r{last};
ga_ssize p = base + (ga_ssize)column * rs{last};
{place_folded}
const ga_size stop = min(end, i + (r{last} - column));
if (i == begin) {{
{first}
++i;
p += rs{last};
}}
for (; i < stop; ++i) {{
{each}
p += rs{last};
}}
}}
{finish}
}}
}}
"""

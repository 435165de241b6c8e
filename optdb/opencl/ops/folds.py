"""Kernels that fold the elements of arrays: for any axes and strides, and for columns side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optdb.opencl.fp16_help import load_w, write_w
from optdb.opencl.kernels import ARRAY, SIZE, SSIZE, Kernel, ctype
from optdb.opencl.scalars.code import scalar_code
from optdb.opencl.scalars.types import c_type, convert

#: Columns that one work item folds side by side.
COLUMNS = 16

_COLUMNS = """
#pragma OPENCL FP_CONTRACT OFF
KERNEL void {name}(ga_size n, ga_size m, ga_size parts, ga_size part,
    GLOBAL_MEM {stored} *a, ga_size a_off, ga_ssize step, GLOBAL_MEM {result_type} *z, ga_size z_off)
{{
a = (GLOBAL_MEM {stored} *)((GLOBAL_MEM char *)a + a_off);
z = (GLOBAL_MEM {result_type} *)((GLOBAL_MEM char *)z + z_off);
const ga_size blocks = (n + {width} - 1) / {width};
const ga_size j = get_global_id(0) % blocks * {width}, mine = get_global_id(0) / blocks;
if (mine >= parts)
    return;
const int width = (int)min((ga_size){width}, n - j);
const ga_size end = min((mine + 1) * part, m);
{computed} acc[{width}];
const GLOBAL_MEM {stored} *row = a + (ga_ssize)(mine * part) * step + j;
for (int c = 0; c < width; ++c)
    acc[c] = {value};
if (width == {width}) {{
    for (ga_size i = mine * part + 1; i < end; ++i) {{
        row += step;
        for (int c = 0; c < {width}; ++c) {{
            const {computed} x = {value};
            {combine}
        }}
    }}
}} else {{
    for (ga_size i = mine * part + 1; i < end; ++i) {{
        row += step;
        for (int c = 0; c < width; ++c) {{
            const {computed} x = {value};
            {combine}
        }}
    }}
}}
for (int c = 0; c < width; ++c)
    z[mine * n + j + c] = {result};
}}
"""


@dataclass(frozen=True)
class Fold:
    """What is folded, from which dtype by which to which.

    Parameters
    ----------
    op : ScalarOp
        What makes one element of two.
    dtype, acc_dtype, out_dtype : str
        Of the elements, of what is computed in between, and of the results.
    kept, folded : int
        How many axes stay, and how many go.
    """

    op: Any
    dtype: str
    acc_dtype: str
    out_dtype: str
    kept: int
    folded: int

    def kernel(self, name: str) -> Kernel:
        """Return a kernel for arrays of any strides."""
        kept, folded = max(self.kept, 1), max(self.folded, 1)
        code = scalar_code(self.op, [self.acc_dtype, self.acc_dtype], ["acc", "x"], ["acc"])
        params = [SIZE] * 5 + [SIZE] * (kept + folded) + [ARRAY] + [SSIZE] * (kept + folded) + [ARRAY]
        flags = Kernel.get_flags(*sorted({self.dtype, self.acc_dtype, self.out_dtype}))
        return Kernel(code.helpers + self._code(name, kept, folded, code.statements), name, params, flags)

    def columns(self, name: str) -> Kernel:
        """Return a kernel for a matrix in C order that folds the elements of each column."""
        code = scalar_code(self.op, [self.acc_dtype, self.acc_dtype], ["acc[c]", "x"], ["acc[c]"])
        read = f"{load_w(self.dtype)}(row[c])"
        computed = c_type(self.acc_dtype)
        text = _COLUMNS.format(
            name=name,
            width=COLUMNS,
            stored=ctype(self.dtype),
            result_type=ctype(self.out_dtype),
            computed=computed,
            value=f"({computed})({convert(read, self.dtype, self.acc_dtype)})",
            combine=code.statements,
            result=f"{write_w(self.out_dtype)}({convert('acc[c]', self.acc_dtype, self.out_dtype)})",
        )
        flags = Kernel.get_flags(*sorted({self.dtype, self.acc_dtype, self.out_dtype}))
        return Kernel(code.helpers + text, name, [SIZE, SIZE, SIZE, SIZE, ARRAY, SSIZE, ARRAY], flags)

    def _code(self, name: str, kept: int, folded: int, combine: str) -> str:
        computed = c_type(self.acc_dtype)
        read = f"{load_w(self.dtype)}(a[p])"
        value = f"({computed})({convert(read, self.dtype, self.acc_dtype)})"
        result = f"{write_w(self.out_dtype)}({convert('acc', self.acc_dtype, self.out_dtype)})"
        return walk(
            name,
            ctype(self.dtype),
            [("z", ctype(self.out_dtype))],
            (kept, folded),
            start=f"{computed} acc = 0;",
            first=f"acc = {value};",
            each=f"const {computed} x = {value};\n{combine}",
            finish=f"z[o * parts + mine] = {result};",
        )


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
KERNEL void {name}(ga_size n, ga_size each, ga_size m, ga_size parts, ga_size part,
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

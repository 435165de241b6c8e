"""What kernels of products share: their types, and the kernel that adds up parts of sums."""

from __future__ import annotations

from string import Template

from optdb.codegen.fp16 import load_w, work_dtype, write_w
from optdb.codegen.kernels import ARRAY, SSIZES, Kernel, ctype

_TYPES = Template("""
#pragma OPENCL FP_CONTRACT ON
#define T $stored
#define W $work
#define LOAD(x) $load(x)
#define STORE(x) $store(x)
#define AT(type, p) p = (GLOBAL_MEM type *)((GLOBAL_MEM char *)p + p##_off)
""")
_NO_TYPES = "".join(f"#undef {word}\n" for word in ("T", "W", "LOAD", "STORE", "AT"))

#: Adds up the parts of sums that were too long for one item.
_TOTAL = """
KERNEL void matmul_total(long16 s, long16 t, W alpha, W beta,
    GLOBAL_MEM T *y, ga_size y_off, GLOBAL_MEM T *z, ga_size z_off, GLOBAL_MEM W *w, ga_size w_off)
{
    AT(T, y);
    AT(T, z);
    AT(W, w);
    const ga_ssize m = s.s0, n = s.s1, parts = s.s2, size = s.s3, row = get_global_id(1);
    if (row * n >= size)
        return;
    const ga_ssize batch = row / m, i = row % m;
    const bool add = s.s4;
    y += t.s0 + batch * t.s1 + i * t.s2;
    z += t.s4 + batch * t.s5 + i * t.s6;
    w += s.s5 + row * n;
    for (ga_ssize j = get_global_id(0); j < n; j += get_global_size(0)) {
        W sum = 0;
        for (ga_ssize p = 0; p < parts; ++p)
            sum += w[p * size + j];
        sum *= alpha;
        if (add)
            sum += beta * LOAD(y[j * t.s3]);
        z[j * t.s7] = STORE(sum);
    }
}
"""


def with_types(code: str, dtype: str) -> str:
    """Return code between the definitions of its types, which no other code of the program sees."""
    words = {"load": load_w(dtype), "store": write_w(dtype)}
    return _TYPES.substitute(words, stored=ctype(dtype), work=ctype(work_dtype(dtype))) + code + _NO_TYPES


def total_kernel(dtype: str) -> Kernel:
    """Return the kernel that adds up the parts of sums."""
    work = work_dtype(dtype)
    params = [SSIZES, SSIZES, work, work, ARRAY, ARRAY, ARRAY]
    return Kernel(with_types(_TOTAL, dtype), "matmul_total", params, Kernel.get_flags(dtype))

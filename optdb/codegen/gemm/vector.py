"""Products of a matrix and a vector.

Rows are shared among work items, and so are the terms of their sums where rows are few. On a processor an item goes
along its rows, some of them at a time, or down its columns, whichever lie without gaps. On a GPU neighbouring items
read neighbours of a row, or of a column, and add up what they found in local memory.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from string import Template
from typing import TYPE_CHECKING

from optdb.codegen.fp16 import load_w, work_dtype
from optdb.codegen.gemm.code import total_kernel, with_types
from optdb.codegen.gemm.launches import GemmPlan, Launch, pack, run
from optdb.codegen.kernels import ARRAY, SSIZES, CompiledKernel, Kernel
from optdb.codegen.scalars.types import C_TYPES
from optdb.runtime.arrays import Array

if TYPE_CHECKING:
    from optdb.runtime.context import Context
    from optdb.runtime.device_profiles import DeviceKind

#: Rows that one work item of a processor multiplies.
ROWS = 16
#: Items of a GPU's group that read neighbours, and how many such rows, or columns, it reads at a time.
NEAR, FAR = 32, 8
#: Terms of a part, at least, where rows are too few to give all units work.
PART = {"cpu": 4096, "gpu": 512}
#: Parts, at most: each number of the result is added up from all of them by one item.
PARTS = 128
#: Pieces of work for each unit.
PIECES_PER_UNIT = {"cpu": 4, "gpu": 8}

_HEAD = """
OUTLINED_KERNEL void matvec(long16 s, long16 t, W alpha, W beta, GLOBAL_MEM T *a, ga_size a_off,
    GLOBAL_MEM T *x, ga_size x_off, GLOBAL_MEM T *y, ga_size y_off,
    GLOBAL_MEM T *z, ga_size z_off, GLOBAL_MEM W *w, ga_size w_off)
{
    AT(T, a);
    AT(T, x);
    AT(T, y);
    AT(T, z);
    AT(W, w);
    const ga_ssize m = s.s0, a0 = s.s2, a1 = s.s3, x0 = s.s4, y0 = s.s5, z0 = s.s6, parts = s.s7;
    const bool add = s.s9, along = s.sA;
    const ga_ssize part = get_group_id(1), l0 = part * s.s8, k = min(s.s1 - l0, s.s8);
    a += l0 * a1;
    x += l0 * x0;
    w += part * m;
"""

_STORE = """
        if (parts > 1) {
            w[i] = sum;
        } else {
            W value = alpha * sum;
            if (add)
                value += beta * LOAD(y[i * y0]);
            z[i * z0] = STORE(value);
        }
"""

_CPU = Template("""
    const ga_ssize i0 = get_global_id(0) * $rows;
    const int rows = (int)min((ga_ssize)$rows, m - i0);
    a += i0 * a0;
    W sums[$rows];
    for (int r = 0; r < $rows; ++r)
        sums[r] = 0;
    if (a0 == 1 && rows == $rows) {
        for (ga_ssize l = 0; l < k; ++l) {
            const W right = LOAD(x[l * x0]);
            for (int r = 0; r < $rows; ++r)
                sums[r] += LOAD(a[l * a1 + r]) * right;
        }
    } else {
        ga_ssize begin = 0;
        if (a1 == 1 && x0 == 1) {
            begin = k - k % 16;
            for (int r0 = 0; r0 < rows; r0 += 4) {  /* a row that there is not is the last one again */
                $vector acc[4];
                GLOBAL_MEM const $memory *row[4];
                #pragma unroll
                for (int r = 0; r < 4; ++r) {
                    acc[r] = 0;
                    row[r] = (GLOBAL_MEM const $memory *)(a + min(r0 + r, rows - 1) * a0);
                }
                for (ga_ssize l = 0; l < begin; l += 16) {
                    const $vector right = $load(0, (GLOBAL_MEM const $memory *)x + l);
                    #pragma unroll
                    for (int r = 0; r < 4; ++r)
                        acc[r] += $load(0, row[r] + l) * right;
                }
                for (int r = 0; r < 4 && r0 + r < rows; ++r) {
                    W lanes[16];
                    vstore16(acc[r], 0, lanes);
                    for (int v = 0; v < 16; ++v)
                        sums[r0 + r] += lanes[v];
                }
            }
        }
        for (int r = 0; r < rows; ++r)
            for (ga_ssize l = begin; l < k; ++l)
                sums[r] += LOAD(a[r * a0 + l * a1]) * LOAD(x[l * x0]);
    }
    for (int r = 0; r < rows; ++r) {
        const ga_ssize i = i0 + r;
        const W sum = sums[r];
""")

_GPU = Template("""
    __local W found[$near * $far];
    const int near = get_local_id(0) % $near, far = get_local_id(0) / $near;
    const int lane = along ? near : far, lanes = along ? $near : $far, row = along ? far : near;
    const ga_ssize i = get_group_id(0) * (along ? $far : $near) + row;
    W sum = 0;
    if (i < m)
        for (ga_ssize l = lane; l < k; l += lanes)
            sum += LOAD(a[i * a0 + l * a1]) * LOAD(x[l * x0]);
    found[row * lanes + lane] = sum;
    for (int reach = lanes / 2; reach > 0; reach /= 2) {
        local_barrier();
        if (lane < reach)
            found[row * lanes + lane] += found[row * lanes + lane + reach];
    }
    if (i < m && lane == 0) {
        sum = found[row * lanes];
""")


def matvec_kernels(dtype: str, context: Context) -> list[Kernel]:
    """Return the kernels that `matvec` takes."""
    work, half = work_dtype(dtype), load_w(dtype) != ""
    body = _CPU if context.profile.runs_items_serially else _GPU
    words = {"vector": f"{C_TYPES[work]}16", "load": "vload_half16" if half else "vload16", "rows": ROWS}
    words |= {"memory": "half" if half else "W", "near": NEAR, "far": FAR}
    code = with_types(_HEAD + body.substitute(words) + _STORE + "    }\n}\n", dtype)
    params = [SSIZES, SSIZES, work, work, *[ARRAY] * 5]
    return [Kernel(code, "matvec", params, Kernel.get_flags(dtype)), total_kernel(dtype)]


def matvec(
    kernels: Mapping[str, CompiledKernel],
    context: Context,
    a: Array,
    x: Array,
    z: Array,
    alpha: float = 1.0,
    y: Array | None = None,
    beta: float = 0.0,
) -> None:
    """Set `z` to ``alpha * dot(a, x) + beta * y``, like `matmul` with vectors for `x`, `y` and `z`."""
    m, k = a.shape
    if k != x.shape[0] or z.shape != (m,):
        raise ValueError(f"shapes do not fit: a product of {a.shape} and {x.shape} for an array of {z.shape}")
    add = y is not None and beta != 0
    if add and y.shape != (m,):
        raise ValueError(f"shapes do not fit: an array of {y.shape} is added to a product of {a.shape} and {x.shape}")
    if not z.size:
        return
    y = y if add else z
    steps = tuple(step // z.dtype.itemsize for array in (a, x, y, z) for step in array.strides)
    planned = _plan(context.profile.device_kind, context.profile.compute_units, m, k, steps, add)
    run(planned, kernels, context, {"a": a, "x": x, "y": y, "z": z}, alpha, beta, work_dtype(z.dtype.name))


@functools.lru_cache(maxsize=1024)
def _plan(device_kind: DeviceKind, units: int, m: int, k: int, steps: tuple[int, ...], add: bool) -> GemmPlan:
    a0, a1, _, y0, z0 = steps
    # Short rows would leave most of those items idle that read neighbours.
    along = abs(a1) <= abs(a0) and k > NEAR // 2
    rows, items = (ROWS, 1) if device_kind == "cpu" else (FAR if along else NEAR, NEAR * FAR)
    pieces = -(-m // rows)
    parts = max(min(-(-units * PIECES_PER_UNIT[device_kind] // pieces), k // PART[device_kind], PARTS), 1)
    part = -(-max(k, 1) // parts)
    parts = -(-max(k, 1) // part)
    sizes = pack(m, k, *steps, parts, part, int(add), int(along))
    letters = "axyz" + ("w" if parts > 1 else "z")
    launch = Launch("matvec", (pieces * items, parts), (items, 1), (sizes, pack()), letters, "ab")
    if parts == 1:
        return GemmPlan([launch])
    # To be added up, the result is a row.
    sizes, more = pack(1, m, parts, m, int(add)), pack(0, 0, 0, y0, 0, 0, 0, z0)
    columns, group = (1, 1) if device_kind == "cpu" else (-(-m // NEAR) * NEAR, NEAR)
    return GemmPlan([launch, Launch("matmul_total", (columns, 1), (group, 1), (sizes, more), "yzw", "ab")], parts * m)

"""Products of matrices on a GPU: the kernels.

A work group computes a tile of the result. It brings tiles of both matrices to local memory, the next ones while it
works with those before, and each item keeps its part of the sums in registers (Volkov and Demmel, "Benchmarking GPUs
to tune dense linear algebra", 2008; Nath, Tomov and Dongarra, "An improved Magma gemm for Fermi GPUs", 2010). Strides
are free: neighbouring items load what lies side by side, along the rows of a matrix or along its columns. Rows and
columns beyond the last are the last one again while they are read, and are not stored.
"""

from __future__ import annotations

from string import Template

import numpy as np

from optdb.codegen.fp16 import work_dtype
from optdb.codegen.gemm.blocks import PADDING, GroupBlock
from optdb.codegen.gemm.code import with_types
from optdb.codegen.kernels import ARRAY, SSIZES, Kernel
from optdb.codegen.scalars.types import C_TYPES

#: Bytes that an item reads from local memory at once.
_READ = 16

_TILE = Template("""
__attribute__((reqd_work_group_size($items, 1, 1)))
KERNEL void $name(long16 s, long16 t, W alpha, W beta,
    GLOBAL_MEM T *a, ga_size a_off, GLOBAL_MEM T *b, ga_size b_off,
    GLOBAL_MEM T *y, ga_size y_off, GLOBAL_MEM T *z, ga_size z_off, GLOBAL_MEM W *w, ga_size w_off)
{
    __local W left[2][$depth][$rows + $padding] __attribute__((aligned(16)));
    __local W right[2][$depth][$cols + $padding] __attribute__((aligned(16)));
    AT(T, a);
    AT(T, b);
    AT(T, y);
    AT(T, z);
    AT(W, w);
    const ga_ssize m = s.s0, n = s.s1, a_row = s.s4, a_step = s.s5, b_col = s.s7, b_step = s.s8;
    const ga_ssize y0 = t.s1, y1 = t.s2, z0 = t.s4, z1 = t.s5, parts = t.s6;
    const bool a_along = s.s9, b_along = s.sA, add = s.sB;
    const ga_ssize tiles = (n + $cols - 1) / $cols;
    ga_ssize place = get_group_id(0);
    const ga_ssize j0 = place % tiles * $cols;
    place /= tiles;
    const ga_ssize i0 = place % ((m + $rows - 1) / $rows) * $rows;
    place /= (m + $rows - 1) / $rows;
    const ga_ssize batch = place / parts, part = place % parts;
    const ga_ssize l0 = part * t.s7, k = min(s.s2 - l0, t.s7);
    const int item = get_local_id(0), tx = $tx, ty = $ty;
    /* What an item loads of a tile: along the sums, or across them. */
    const int a_l = a_along ? item % $depth : item / $rows, a_i = a_along ? item / $depth : item % $rows;
    const int b_l = b_along ? item % $depth : item / $cols, b_j = b_along ? item / $depth : item % $cols;
    const int a_dl = a_along ? 0 : $items / $rows, a_di = a_along ? $items / $depth : 0;
    const int b_dl = b_along ? 0 : $items / $cols, b_dj = b_along ? $items / $depth : 0;
    const int last_i = (int)min((ga_ssize)$rows, m - i0) - 1, last_j = (int)min((ga_ssize)$cols, n - j0) - 1;
    a += batch * s.s3 + i0 * a_row + l0 * a_step;
    b += batch * s.s6 + j0 * b_col + l0 * b_step;
    W a_next[$a_loads], b_next[$b_loads], acc[$item_rows][$item_cols];
    #pragma unroll
    for (int r = 0; r < $item_rows; ++r)
        #pragma unroll
        for (int c = 0; c < $item_cols; ++c)
            acc[r][c] = 0;

#define LOAD_TILES(there) \\
    _Pragma("unroll") \\
    for (int v = 0; v < $a_loads; ++v) { \\
        const int l = a_l + v * a_dl, i = min(a_i + v * a_di, last_i); \\
        a_next[v] = l < (there) ? LOAD(a[i * a_row + l * a_step]) : 0; \\
    } \\
    _Pragma("unroll") \\
    for (int v = 0; v < $b_loads; ++v) { \\
        const int l = b_l + v * b_dl, j = min(b_j + v * b_dj, last_j); \\
        b_next[v] = l < (there) ? LOAD(b[j * b_col + l * b_step]) : 0; \\
    } \\
    a += $depth * a_step; \\
    b += $depth * b_step;
#define KEEP_TILES(side) \\
    _Pragma("unroll") \\
    for (int v = 0; v < $a_loads; ++v) \\
        left[side][a_l + v * a_dl][a_i + v * a_di] = a_next[v]; \\
    _Pragma("unroll") \\
    for (int v = 0; v < $b_loads; ++v) \\
        right[side][b_l + v * b_dl][b_j + v * b_dj] = b_next[v];

    LOAD_TILES(k)
    KEEP_TILES(0)
    local_barrier();
    int side = 0;
    for (ga_ssize done = 0; done < k; done += $depth) {
        const ga_ssize rest = k - done - $depth;
        if (rest >= $depth) {
            LOAD_TILES($depth)
        } else if (rest > 0) {
            LOAD_TILES((int)rest)
        }
        #pragma unroll
        for (int l = 0; l < $depth; ++l) {
            W x[$item_rows], v[$item_cols];
            #pragma unroll
            for (int r = 0; r < $item_rows; r += $a_read)
                $read_a;
            #pragma unroll
            for (int c = 0; c < $item_cols; c += $b_read)
                $read_b;
            #pragma unroll
            for (int r = 0; r < $item_rows; ++r)
                #pragma unroll
                for (int c = 0; c < $item_cols; ++c)
                    acc[r][c] += x[r] * v[c];
        }
        if (rest > 0) {
            KEEP_TILES(!side)
            side = !side;
        }
        local_barrier();
    }
    y += batch * t.s0;
    z += batch * t.s3;
    w += (part * t.s8 + batch) * m * n;
    #pragma unroll
    for (int r = 0; r < $item_rows; ++r) {
        const ga_ssize i = i0 + r / $a_read * ($rows / $item_rows * $a_read) + ty * $a_read + r % $a_read;
        #pragma unroll
        for (int c = 0; c < $item_cols; ++c) {
            const ga_ssize j = j0 + c / $b_read * ($cols / $item_cols * $b_read) + tx * $b_read + c % $b_read;
            if (i >= m || j >= n) {
            } else if (parts > 1) {
                w[i * n + j] = acc[r][c];
            } else {
                W sum = alpha * acc[r][c];
                if (add)
                    sum += beta * LOAD(y[i * y0 + j * y1]);
                z[i * z0 + j * z1] = STORE(sum);
            }
        }
    }
#undef LOAD_TILES
#undef KEEP_TILES
}
""")


def tile_kernel(dtype: str, block: GroupBlock) -> Kernel:
    """Return the kernel that multiplies by tiles of one shape."""
    work = work_dtype(dtype)
    wide = _READ // np.dtype(work).itemsize
    a_read, b_read = min(wide, block.item_rows), min(wide, block.item_cols)
    across = block.cols // block.item_cols
    code = _TILE.substitute(
        name=block.name,
        items=block.items,
        rows=block.rows,
        cols=block.cols,
        depth=block.depth,
        padding=PADDING,
        item_rows=block.item_rows,
        item_cols=block.item_cols,
        a_loads=block.rows * block.depth // block.items,
        b_loads=block.cols * block.depth // block.items,
        tx=f"item % {across}",
        ty=f"item / {across}",
        a_read=a_read,
        b_read=b_read,
        read_a=_read("x", "left", "r", "ty", a_read, block.rows // block.item_rows, work),
        read_b=_read("v", "right", "c", "tx", b_read, across, work),
    )
    params = [SSIZES, SSIZES, work, work, *[ARRAY] * 5]
    return Kernel(with_types(code, dtype), block.name, params, Kernel.get_flags(dtype))


def _read(to: str, tile: str, index: str, place: str, width: int, items: int, work: str) -> str:
    """Return what reads some numbers of a row of a tile: items read next to each other, some at a time."""
    at = f"{index} / {width} * {items * width} + {place} * {width}"
    if width == 1:
        return f"{to}[{index}] = {tile}[side][l][{at}]"
    vector = f"{C_TYPES[work]}{width}"
    return f"vstore{width}(*(__local const {vector} *)&{tile}[side][l][{at}], 0, {to} + {index})"

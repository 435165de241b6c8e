"""Products of matrices on a processor: the kernels.

A work item goes down one panel of columns. It keeps a block of sums in registers, vectors of columns by some rows, and
for each term loads a vector of `b` and one number of `a` per row. Both matrices may be read where they are, `b` if the
columns of a panel lie side by side; or from panels that the pack kernel laid out term by term, as in Goto and van de
Geijn, "Anatomy of high-performance matrix multiplication" (2008). Rows and columns that do not fill a block: rows are
computed in blocks of half the height where that is enough. Where `b` is read in place, a last panel of columns begins
further left, or, if there are too few for that, reads on into the next row; where it is packed, it is filled up with
zeros. What is there already or not at all is not stored.
"""

from __future__ import annotations

from string import Template

from optdb.codegen.fp16 import load_w, work_dtype
from optdb.codegen.gemm.blocks import ItemBlock
from optdb.codegen.gemm.code import with_types
from optdb.codegen.kernels import ARRAY, SSIZES, Kernel
from optdb.codegen.scalars.types import C_TYPES

_PACK = Template("""
OUTLINED_KERNEL void matmul_pack_$width(long16 s, GLOBAL_MEM T *x, ga_size x_off, GLOBAL_MEM W *w, ga_size w_off)
{
    AT(T, x);
    AT(W, w);
    const ga_ssize length = s.s0, k = s.s1, step = s.s5, k_step = s.s6;
    const ga_ssize at = get_global_id(0) * $width;
    const int there = (int)min((ga_ssize)$width, length - at);
    x += s.s3 + get_global_id(1) * s.s4 + at * step;
    w += s.s2 + get_global_id(1) * s.s7 + at * k;
    if (there == $width && step == 1) {
        for (ga_ssize l = 0; l < k; ++l)
            for (int r = 0; r < $width; ++r)
                w[l * $width + r] = LOAD(x[l * k_step + r]);
        return;
    }
    ga_ssize l = 0;
    if (there == $width && k_step == 1)
        for (; l + $side <= k; l += $side)
            for (int r0 = 0; r0 < $width; r0 += $side) {
$turn
            }
    else if (there == $width)  /* some terms at a time, which lie in few lines of the cache */
        for (; l + 16 <= k; l += 16)
            for (int r = 0; r < $width; ++r)
                for (int c = 0; c < 16; ++c)
                    w[(l + c) * $width + r] = LOAD(x[r * step + (l + c) * k_step]);
    for (; l < k; ++l) {
        for (int r = 0; r < there; ++r)
            w[l * $width + r] = LOAD(x[r * step + l * k_step]);
        for (int r = there; r < $width; ++r)
            w[l * $width + r] = 0;
    }
}
""")

_BLOCK = Template("""
OUTLINED_KERNEL void $name(long16 s, long16 t, W alpha, W beta,
    GLOBAL_MEM W *a, ga_size a_off, GLOBAL_MEM W *b, ga_size b_off,
    GLOBAL_MEM T *y, ga_size y_off, GLOBAL_MEM T *z, ga_size z_off, GLOBAL_MEM W *w, ga_size w_off)
{
    AT(W, a);
    AT(W, b);
    AT(T, y);
    AT(T, z);
    AT(W, w);
    const ga_ssize m = s.s0, n = s.s1, a_row = s.s6, a_step = s.s7, b_step = s.sB, chunk = s.sC;
    const ga_ssize y0 = t.s2, y1 = t.s3, z0 = t.s6, z1 = t.s7, parts = t.s8;
    const bool in_place = s.sD, add = s.sE, a_packed = s.sF;
    const ga_ssize panel = get_global_id(0), begin = get_global_id(1) * chunk, end = min(begin + chunk, m);
    const ga_ssize batch = get_global_id(2) / parts, part = get_global_id(2) % parts;
    const ga_ssize l0 = part * t.s9, k = min(s.s2 - l0, t.s9);
    /* For so many terms whole vectors can be read, if there are fewer columns than that. */
    const ga_ssize whole = clamp(t.sB - l0, (ga_ssize)0, k);
    /* How far the panel begins before those columns that are its own. */
    const int known = in_place ? (int)max(min(panel * $cols, panel * $cols + $cols - n), (ga_ssize)0) : 0;
    const ga_ssize j0 = panel * $cols - known;
    const int cols = (int)min((ga_ssize)$cols, n - j0);
    a += s.s3 + batch * s.s4 + l0 * a_step;
    b += s.s8 + batch * s.s9 + panel * s.sA - known + l0 * b_step;
    y += t.s0 + batch * t.s1 + j0 * y1;
    z += t.s4 + batch * t.s5 + j0 * z1;
    w += t.sA + (part * (get_num_groups(2) / parts) + batch) * m * n + j0;
    const bool rows_of_vectors = cols == $cols && !known && z1 == 1 && (y1 == 1 || !add);
    for (ga_ssize i0 = begin; i0 < end; i0 += $rows) {
        GLOBAL_MEM const W *block = a + i0 / $rows * s.s5;
        const int rows = (int)min((ga_ssize)$rows, end - i0);
        if (rows <= $rows / 2) {$low} else {$high}
    }
}
""")

_ROWS = Template("""
        $vector acc[$height][$vectors];
        #pragma unroll
        for (int r = 0; r < $height; ++r)
            #pragma unroll
            for (int c = 0; c < $vectors; ++c)
                acc[r][c] = 0;
        $sums
        for (ga_ssize l = whole; l < k; ++l) {
            W last[$cols];
            for (int c = 0; c < $cols; ++c)
                last[c] = c < n ? b[l * b_step + c] : 0;
            #pragma unroll
            for (int r = 0; r < $height; ++r)
                #pragma unroll
                for (int c = 0; c < $vectors; ++c)
                    acc[r][c] += block[min(r, rows - 1) * a_row + l * a_step] * vload$width(c, last);
        }
        if (parts == 1 && rows_of_vectors) {
            #pragma unroll
            for (int r = 0; r < $height; ++r) {
                if (r < rows)
                    #pragma unroll
                    for (int c = 0; c < $vectors; ++c) {
                        $vector sum = ($vector)alpha * acc[r][c];
                        if (add)
                            sum += ($vector)beta * $load(0, (const $memory *)(y + (i0 + r) * y0 + c * $width));
                        $store(sum, 0, ($memory *)(z + (i0 + r) * z0 + c * $width));
                    }
            }
        } else {
            W sums[$height * $cols];
            #pragma unroll
            for (int r = 0; r < $height; ++r)
                #pragma unroll
                for (int c = 0; c < $vectors; ++c)
                    vstore$width(acc[r][c], r * $vectors + c, sums);
            #pragma unroll 1
            for (int r = 0; r < rows; ++r) {
                #pragma unroll 1
                for (int c = known; c < cols; ++c) {
                    if (parts > 1) {
                        w[(i0 + r) * n + c] = sums[r * $cols + c];
                        continue;
                    }
                    W sum = alpha * sums[r * $cols + c];
                    if (add)
                        sum += beta * LOAD(y[(i0 + r) * y0 + c * y1]);
                    z[(i0 + r) * z0 + c * z1] = STORE(sum);
                }
            }
        }
""")

_SUMS = Template("""
            for (ga_ssize l = 0; l < whole; ++l) {
                $vector right[$vectors];
                #pragma unroll
                for (int c = 0; c < $vectors; ++c)
                    right[c] = vload$width(c, b + l * b_step);
                #pragma unroll
                for (int r = 0; r < $height; ++r) {
                    const W left = $left;
                    #pragma unroll
                    for (int c = 0; c < $vectors; ++c)
                        acc[r][c] += left * right[c];
                }
            }
""")

#: Rows that there are not are the last one again.
_POINTERS = Template("""
            GLOBAL_MEM const W *row[$height];
            #pragma unroll
            for (int r = 0; r < $height; ++r)
                row[r] = block + min(r, rows - 1) * a_row;
""")


def pack_kernel(dtype: str, width: int) -> Kernel:
    """Return the kernel that lays a matrix out in panels of so many rows, or columns."""
    side = next(side for side in (16, 8, 4, 2, 1) if width % side == 0)
    code = _PACK.substitute(width=width, side=side, turn=_turn(side, width, dtype))
    return Kernel(with_types(code, dtype), f"matmul_pack_{width}", [SSIZES, ARRAY, ARRAY], Kernel.get_flags(dtype))


def _turn(side: int, width: int, dtype: str) -> str:
    """Return what turns a square of numbers over, in registers.

    Each round deals the vectors of one half between those of the other. After as many rounds as it takes to halve
    the side down to 1, rows have become columns.
    """
    if side == 1:
        return f"w[l * {width} + r0] = LOAD(x[r0 * step + l]);"
    vector = f"{C_TYPES[work_dtype(dtype)]}{side}"
    if load_w(dtype):
        load = f"vload_half{side}(0, (GLOBAL_MEM const half *)(x + (r0 + {{}}) * step + l))"
    else:
        load = f"vload{side}(0, x + (r0 + {{}}) * step + l)"
    lines = [f"{vector} v0_{r} = {load.format(r)};" for r in range(side)]
    rounds = side.bit_length() - 1
    for round_ in range(rounds):
        for r in range(side // 2):
            one, other = f"v{round_}_{r}", f"v{round_}_{r + side // 2}"
            for part, to in enumerate((2 * r, 2 * r + 1)):
                lanes = range(part * side // 2, (part + 1) * side // 2)
                dealt = ", ".join(f"{x}.s{lane:X}" for lane in lanes for x in (one, other))
                lines.append(f"{vector} v{round_ + 1}_{to} = ({vector})({dealt});")
    lines += [f"vstore{side}(v{rounds}_{c}, 0, w + (l + {c}) * {width} + r0);" for c in range(side)]
    return "\n".join(lines)


def block_kernel(dtype: str, block: ItemBlock) -> Kernel:
    """Return the kernel that multiplies by blocks of one shape."""
    work, half = work_dtype(dtype), load_w(dtype) != ""
    words = {
        "name": block.name,
        "rows": block.rows,
        "cols": block.cols,
        "width": block.width,
        "vectors": block.cols // block.width,
        "vector": f"{C_TYPES[work]}{block.width}",
        "load": f"vload_half{block.width}" if half else f"vload{block.width}",
        "store": f"vstore_half{block.width}_rte" if half else f"vstore{block.width}",
        "memory": "GLOBAL_MEM half" if half else "GLOBAL_MEM W",
    }
    code = _BLOCK.substitute(words, name=block.name, high=_body(block.rows, words), low=_body(block.rows // 2, words))
    params = [SSIZES, SSIZES, work, work, *[ARRAY] * 5]
    return Kernel(with_types(code, dtype), block.name, params, Kernel.get_flags(dtype))


def _body(height: int, words: dict[str, object]) -> str:
    """Return what computes a block of so many rows."""
    words = {**words, "height": height}
    by_rows = _POINTERS.substitute(words) + _SUMS.substitute(words, left="row[r][l * a_step]")
    if height < words["rows"]:
        return _ROWS.substitute(words, sums=by_rows)
    side_by_side = _SUMS.substitute(words, left="block[l * a_step + r]")
    sums = f"if (a_row == 1 && (a_packed || rows == {height})) {{{side_by_side}}} else {{{by_rows}}}"
    return _ROWS.substitute(words, sums=sums)
